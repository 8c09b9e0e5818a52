"""Selectors of nodes and labels, taints and tolerations, as kube-scheduler reads them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from allocation.label_selector import Expression, ExpressionSet, is_met
from scheduler.objects import Node, Taint
from scheduler.pod_spec.constraints import NodeSelector, Term, Toleration
from scheduler.pod_spec.spec import PodSpec

_BLOCKING: Final = ("NoSchedule", "NoExecute")
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")

Matcher = Callable[[Node], bool]
"""Whether a pod's nodeSelector and required node affinity match a node."""


_Tests = tuple[tuple[ExpressionSet, ...], tuple[ExpressionSet, ...]]
"""The expressions of a term over labels, and those over fields."""


def node_matcher(spec: PodSpec) -> Matcher:
    """Return the test of the pod's nodeSelector and required node affinity, compiled once for many nodes."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    wanted = spec.node_selector.items()
    terms = None
    if affinity is not None and affinity.required is not None:
        terms = _compile_terms(affinity.required)

    def matches(node: Node) -> bool:
        if wanted:
            labels = node.metadata.labels
            if any(labels.get(key) != value for key, value in wanted):
                return False
        return terms is None or any(_holds(term, node) for term in terms)

    return matches


def label_matcher(selector: NodeSelector) -> Callable[[Mapping[str, str]], bool]:
    """Return the test of a node selector that sees only the labels of a node, as that of a PersistentVolume does."""
    terms = _compile_terms(selector)

    def matches(labels: Mapping[str, str]) -> bool:
        return any(
            all(is_met(each, labels) for each in on_labels) and all(is_met(each, {}) for each in on_fields)
            for on_labels, on_fields in terms
        )

    return matches


def untolerated_taint(spec: PodSpec, node: Node) -> Taint | None:
    """Return the first taint that the pod does not tolerate, or None if it tolerates them all."""
    for taint in node.spec.taints:
        if taint.effect in _BLOCKING and not any(_tolerates(each, taint) for each in spec.tolerations):
            return taint
    return None


def tolerates_unschedulable(spec: PodSpec) -> bool:
    """Whether the pod may run on an unschedulable node, because it tolerates the taint that stands for it."""
    return any(_tolerates(each, _CORDON) for each in spec.tolerations)


def tolerates(spec: PodSpec, taint: Taint) -> bool:
    """Whether the pod tolerates a taint."""
    return any(_tolerates(each, taint) for each in spec.tolerations)


def term_matcher(term: Term) -> Matcher | None:
    """Return the test of one node selector term, compiled once for many nodes; None for an empty term.

    An empty term matches no node.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    compiled = (_compile(term.match_expressions), _compile(term.match_fields))
    return lambda node: _holds(compiled, node)


def _compile_terms(selector: NodeSelector) -> tuple[_Tests, ...]:
    # An empty term matches no node.
    return tuple(
        (_compile(term.match_expressions), _compile(term.match_fields))
        for term in selector.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def _compile(expressions: Iterable[Expression]) -> tuple[ExpressionSet, ...]:
    return tuple(ExpressionSet(each.key, each.operator, frozenset(each.values)) for each in expressions)


def _holds(term: _Tests, node: Node) -> bool:
    on_labels, on_fields = term
    labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
    return all(is_met(each, labels) for each in on_labels) and all(is_met(each, fields) for each in on_fields)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False
