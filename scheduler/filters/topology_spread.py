"""Topology spread: how unevenly pods may be distributed over zones, nodes, or other values of a node label.

The rules are those of kube-scheduler's filter PodTopologySpread (pkg/scheduler/framework/plugins/podtopologyspread,
v1.34) for constraints with `DoNotSchedule`; those with `ScheduleAnyway` never reject a node, see
`scheduler.scoring.topology_spread`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation.label_selector import Selector, accepts, label_selector, of_labels
from allocation.reasons import NodeReason, NodeRejection
from scheduler import selectors
from scheduler.filters.pod_index import PodIndex
from scheduler.objects import Node, Pod
from scheduler.pod_spec.constraints import SpreadConstraint
from scheduler.selectors import Matcher

_NO_DOMAIN: Final = NodeRejection(
    NodeReason.TopologySpreadMismatch,
    "node didn't match pod topology spread constraints (missing required label)",
    resolvable=False,
)
_UNEVEN: Final = NodeRejection(NodeReason.TopologySpreadMismatch, "node didn't match pod topology spread constraints")


class _Limit(msgspec.Struct, frozen=True):
    """One constraint: its topology key, the pods in each domain, and how many a domain may have before it is full."""

    key: str
    counts: Mapping[str, int]
    most: int


class SpreadRule(msgspec.Struct, frozen=True):
    """What topology spread requires of a node for one pod."""

    limits: tuple[_Limit, ...]

    def rejection(self, node: Node) -> NodeRejection | None:
        """Return why a node does not take the pod, or None where it does."""
        labels = node.metadata.labels
        for limit in self.limits:
            if limit.key not in labels:
                return _NO_DOMAIN
            if limit.counts.get(labels[limit.key], 0) > limit.most:
                return _UNEVEN
        return None


def rule(pod: Pod, *, pod_index: PodIndex, nodes: Mapping[str, Node]) -> SpreadRule | None:
    """Return what topology spread requires for `pod`, or None if it requires nothing."""
    constraints = strict(pod)
    if not constraints:
        return None
    keys = {constraint.topology_key for constraint in constraints}
    counted = [node for node in nodes.values() if keys <= node.metadata.labels.keys()]
    return SpreadRule(tuple(_limit(each, pod, pod_index, counted) for each in constraints))


def strict(pod: Pod) -> list[SpreadConstraint]:
    """Return the constraints that can reject a node."""
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"]


def selector(constraint: SpreadConstraint, pod: Pod) -> Selector:
    """Return the selector of the pods that a constraint of `pod` counts."""
    own = label_selector(constraint.label_selector)
    if own is None:
        return None
    labels = pod.metadata.labels
    return of_labels({key: labels[key] for key in constraint.match_label_keys if key in labels}) + own


def _limit(constraint: SpreadConstraint, pod: Pod, pod_index: PodIndex, nodes: Iterable[Node]) -> _Limit:
    counted = selector(constraint, pod)
    pods = matching_pods(counted, pod.metadata.namespace, pod_index)
    counts: dict[str, int] = {}
    matches = selectors.node_matcher(pod.spec)
    for node in nodes:
        if is_counted(constraint, pod, node, matches):
            domain = node.metadata.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + pods[node.metadata.name]
    least = min(counts.values()) if len(counts) >= (constraint.min_domains or 1) else 0
    counts_itself = accepts(counted, pod.metadata.labels)
    return _Limit(constraint.topology_key, counts, constraint.max_skew + least - counts_itself)


def matching_pods(labels: Selector, namespace: str, pod_index: PodIndex) -> Counter[str]:
    """Count the matching pods on each node; an empty selector matches no pod, as in kube-scheduler."""
    pods: Counter[str] = Counter()
    if labels:
        for group in pod_index.of(namespace):
            if not group.is_terminating and accepts(labels, group.labels):
                pods.update(group.nodes)
    return pods


def is_counted(constraint: SpreadConstraint, pod: Pod, node: Node, matches: Matcher) -> bool:
    """Whether a constraint of `pod`, whose node selectors `matches` tests, counts the pods on a node."""
    if constraint.node_affinity_policy == "Honor" and not matches(node):
        return False
    return constraint.node_taints_policy != "Honor" or selectors.untolerated_taint(pod.spec, node) is None
