"""Inter-pod affinity and anti-affinity: which pods a pod must, and must not, be near.

The rules are those of kube-scheduler's filter InterPodAffinity (pkg/scheduler/framework/plugins/interpodaffinity,
v1.34), without its regression that a namespaceSelector with NotIn or DoesNotExist means every namespace
(kubernetes/kubernetes#141526). Pods on nodes that do not exist are ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation.label_selector import accepts
from allocation.reasons import NodeReason, NodeRejection
from scheduler.filters import affinity_terms
from scheduler.filters.affinity_terms import Namespaces, PodTerm
from scheduler.filters.pod_index import PodIndex
from scheduler.objects import Node, Pod

Domains = Mapping[str, set[str]]
"""Values of node labels, by topology key."""

_NOT_NEAR: Final = NodeRejection(
    NodeReason.PodAffinityMismatch, "node didn't match pod affinity rules", resolvable=False
)
_AVOIDED: Final = NodeRejection(NodeReason.PodAntiAffinityMismatch, "node didn't match pod anti-affinity rules")
_REPELLING: Final = NodeRejection(
    NodeReason.PodAntiAffinityMismatch, "node didn't satisfy existing pods anti-affinity rules"
)


class AffinityRule(msgspec.Struct, frozen=True):
    """What inter-pod affinity requires of a node for one pod.

    Attributes:
        required_keys: the topology keys of the pod's affinity, which a node must have.
        near: the domains with pods that match all terms of the pod's affinity.
        is_first: no pod matches, but this pod matches itself: it may run on any node with the keys.
        avoided: the domains with pods that match the pod's anti-affinity.
        repelling: the domains with pods whose anti-affinity matches the pod.
    """

    required_keys: tuple[str, ...]
    near: Domains
    is_first: bool
    avoided: Domains
    repelling: Domains

    def rejection(self, node: Node) -> NodeRejection | None:
        """Return why a node does not take the pod, or None where it does."""
        labels = node.metadata.labels
        if not all(key in labels for key in self.required_keys):
            return _NOT_NEAR
        if not self.is_first and not all(labels[key] in self.near.get(key, ()) for key in self.required_keys):
            return _NOT_NEAR
        if _is_in(labels, self.avoided):
            return _AVOIDED
        if _is_in(labels, self.repelling):
            return _REPELLING
        return None


def rule(pod: Pod, *, pod_index: PodIndex, nodes: Mapping[str, Node], namespaces: Namespaces) -> AffinityRule | None:
    """Return what inter-pod affinity requires for `pod`, or None if it requires nothing."""
    affinity, anti_affinity = affinity_terms.affinity(pod), affinity_terms.anti_affinity(pod)
    repelling: defaultdict[str, set[str]] = defaultdict(set)
    for term, names in pod_index.repelling(pod, namespaces):
        _add(repelling, term, names, nodes)
    if not affinity and not anti_affinity and not repelling:
        return None
    near: defaultdict[str, set[str]] = defaultdict(set)
    for group in pod_index.covered(affinity[0], namespaces) if affinity else ():
        # A single pod must match all terms.
        if all(term.covers(group.namespace, namespaces) and accepts(term.selector, group.labels) for term in affinity):
            for term in affinity:
                _add(near, term, group.nodes, nodes)
    avoided: defaultdict[str, set[str]] = defaultdict(set)
    for term in anti_affinity:
        for group in pod_index.covered(term, namespaces):
            if accepts(term.selector, group.labels):
                _add(avoided, term, group.nodes, nodes)
    return AffinityRule(
        required_keys=tuple(term.topology_key for term in affinity),
        near=near,
        is_first=not near and all(term.matches(pod, namespaces) for term in affinity),
        avoided=avoided,
        repelling=repelling,
    )


def _add(domains: defaultdict[str, set[str]], term: PodTerm, names: Iterable[str], nodes: Mapping[str, Node]) -> None:
    """Add the values of the term's topology key on the nodes called `names`."""
    for name in names:
        node = nodes.get(name)
        value = node.metadata.labels.get(term.topology_key) if node is not None else None
        if value is not None:
            domains[term.topology_key].add(value)


def _is_in(labels: Mapping[str, str], domains: Domains) -> bool:
    return any(labels.get(key) in values for key, values in domains.items())
