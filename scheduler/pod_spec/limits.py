"""Checks a pod against the limits of `allocation.limits`: how much of a pod the scheduler reads.

A pod beyond a limit is held with the message of this module; none of its oversized parts is kept in memory.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from allocation import limits
from allocation.label_selector import Expression, LabelSelector
from scheduler.pod_spec.constraints import Affinity, SpreadConstraint
from scheduler.pod_spec.containers import PodContainer
from scheduler.pod_spec.volumes import Volume

VOLUME_CHARACTERS: Final = 16 * 1024
"""Characters in the sources of all volumes of a pod that restrict its nodes: names of claims and of disks."""

_CONTAINERS = "spec.containers and spec.initContainers have"
_AFFINITY = "spec.affinity"
_SPREAD = "spec.topologySpreadConstraints has"
_SELECTORS = "spec.nodeSelector, spec.affinity and spec.topologySpreadConstraints have"


def excess_of_labels(labels: Mapping[str, str]) -> str:
    """Return the message for a pod with too many labels, or an empty string."""
    return limits.excess("metadata.labels has", len(labels), "entries", limits.POD_LABELS)


def excess_of_spec(
    containers: Collection[PodContainer],
    *,
    volumes: int,
    tolerations: int,
    node_selector: Mapping[str, str],
    affinity: Affinity | None,
    spread: Collection[SpreadConstraint],
) -> str:
    """Return the message for a pod's spec of which a part is too large, or an empty string.

    Of `volumes` and `tolerations` only the number matters here.
    """
    resources = sum(
        len(each.limits or ()) + (len(each.requests or ()) if each.requests is not each.limits else 0)
        for each in (container.resources for container in containers)
    )
    ports = sum(len(container.ports) for container in containers)
    sizes = (
        (_CONTAINERS, resources, "entries in resources", limits.RESOURCES),
        (_CONTAINERS, ports, "host ports", limits.HOST_PORTS),
        ("spec.volumes has", volumes, "entries", limits.VOLUMES),
        ("spec.nodeSelector has", len(node_selector), "labels", limits.NODE_SELECTOR_LABELS),
        ("spec.tolerations has", tolerations, "entries", limits.TOLERATIONS),
        (_SPREAD, len(spread), "entries", limits.SPREAD_CONSTRAINTS),
    )
    return (
        limits.excess_of_containers(len(containers))
        or _first(sizes)
        or _excess_of_selectors(node_selector, affinity, spread)
    )


def excess_of_volumes(volumes: Iterable[Volume]) -> str:
    """Return the message for volumes whose sources are too long, or an empty string; nothing else checks most."""
    characters = sum(len(text) for volume in volumes for text in _texts(volume))
    return limits.excess("spec.volumes has", characters, "characters in all sources", VOLUME_CHARACTERS)


def _texts(volume: Volume) -> Iterable[str]:
    for source in volume.sources:
        for value in msgspec.structs.astuple(source):
            yield from (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()


def _excess_of_selectors(
    node_selector: Mapping[str, str], affinity: Affinity | None, spread: Collection[SpreadConstraint]
) -> str:
    values = [*node_selector, *node_selector.values()]
    if affinity is None and not spread:
        return ""
    sizes: list[tuple[str, int, str, int]] = []
    if affinity is not None and affinity.node_affinity is not None:
        node_affinity = affinity.node_affinity
        required = node_affinity.required.node_selector_terms if node_affinity.required is not None else ()
        terms = (*required, *(each.preference for each in node_affinity.preferred))
        expressions = [each for term in terms for each in (*term.match_expressions, *term.match_fields)]
        where = f"{_AFFINITY}.nodeAffinity has"
        sizes.append((where, len(required), "required terms", limits.NODE_SELECTOR_TERMS))
        sizes.append((where, len(node_affinity.preferred), "preferred terms", limits.PREFERRED_NODE_TERMS))
        sizes.append((where, len(expressions), "expressions in all terms", limits.NODE_EXPRESSIONS))
        values.extend(_words(expressions))
    if affinity is not None:
        parts = [part for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if part is not None]
        hard = [term for part in parts for term in part.required]
        soft = [each.pod_affinity_term for part in parts for each in part.preferred]
        where = f"{_AFFINITY}.podAffinity and podAntiAffinity have"
        sizes.append((where, len(hard), "required terms", limits.POD_AFFINITY_TERMS))
        sizes.append((where, len(soft), "preferred terms", limits.PREFERRED_POD_TERMS))
        for term in (*hard, *soft):
            values.extend((term.topology_key, *term.namespaces))
            values.extend(_words_of(term.label_selector))
            values.extend(_words_of(term.namespace_selector))
    for constraint in spread:
        values.extend((constraint.topology_key, *constraint.match_label_keys))
        values.extend(_words_of(constraint.label_selector))
    sizes.append((_SELECTORS, len(values), "keys and values in all selectors", limits.SELECTOR_VALUES))
    sizes.append((_SELECTORS, sum(map(len, values)), "characters in all keys and values", limits.SELECTOR_CHARACTERS))
    return _first(sizes)


def _words(expressions: Iterable[Expression]) -> Iterable[str]:
    for each in expressions:
        yield each.key
        yield from each.values


def _words_of(selector: LabelSelector | None) -> Iterable[str]:
    if selector is not None:
        yield from selector.match_labels
        yield from selector.match_labels.values()
        yield from _words(selector.match_expressions)


def _first(sizes: Iterable[tuple[str, int, str, int]]) -> str:
    return next((text for size in sizes if (text := limits.excess(*size))), "")
