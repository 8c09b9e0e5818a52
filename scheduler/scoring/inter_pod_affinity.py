"""Preferred inter-pod affinity: near which pods a pod had rather be, and which pods had rather have it near.

The rules are those of kube-scheduler's score plugin InterPodAffinity (pkg/scheduler/framework/plugins/interpodaffinity,
v1.34): a term adds its weight to all nodes of the domain for each pod that it matches. The required affinity of running
pods counts as a preference with weight 1.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from allocation.label_selector import accepts
from allocation.steps import Steps
from scheduler.filters import affinity_terms
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import scaled_to_range

_STEP = 512
"""Nodes whose pods are counted between two interruptions."""


def concerns(pod: Pod, node_cache: NodeCache) -> bool:
    """Whether the pod prefers to be near other pods or apart from them, or they from it."""
    affinity = pod.spec.affinity
    if affinity is not None and any(
        part and part.preferred for part in (affinity.pod_affinity, affinity.pod_anti_affinity)
    ):
        return True
    return any(True for _ in node_cache.pod_index.preferring(pod, node_cache.namespaces))


def scores(pod: Pod, candidates: Candidates, node_cache: NodeCache) -> Steps[Scores]:
    """Return the score of each candidate."""
    domains = yield from _weights_of_domains(pod, node_cache)
    raw = np.zeros(len(candidates), np.int64)
    for key, weights in domains.items():
        values = yield from candidates.labels(key)
        raw += np.array([weights.get(value, 0) for value in values], np.int64)
    return scaled_to_range(raw)


def _weights_of_domains(pod: Pod, node_cache: NodeCache) -> Steps[Mapping[str, Mapping[str | None, int]]]:
    """Return what a node gains by its value of each topology key."""
    namespaces, index = node_cache.namespaces, node_cache.pod_index
    domains: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for term, weight in affinity_terms.preferences(pod):
        for group in tuple(index.covered(term, namespaces)):
            if accepts(term.selector, group.labels):
                gains = [(name, weight, count) for name, count in group.nodes.items()]
                yield from _add(domains[term.topology_key], term.topology_key, gains, node_cache.nodes)
    for term, weights in tuple(index.preferring(pod, namespaces)):
        gains = [(name, weight, count) for (name, weight), count in weights.items()]
        yield from _add(domains[term.topology_key], term.topology_key, gains, node_cache.nodes)
    return domains


def _add(
    domain: dict[str | None, int], key: str, gains: Iterable[tuple[str, int, int]], nodes: Mapping[str, Node]
) -> Steps[None]:
    """Add what a node's pods contribute to its domain: its name, the weight of a term, and the number of pods.

    Pods on nodes that do not exist, or that do not have the label, count nothing.
    """
    for position, (name, weight, count) in enumerate(gains):
        if position % _STEP == _STEP - 1:
            yield
        node = nodes.get(name)
        if node is not None and (value := node.metadata.labels.get(key)) is not None:
            domain[value] = domain.get(value, 0) + weight * count
