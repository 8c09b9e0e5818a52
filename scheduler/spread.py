"""Topology spread: how unevenly pods may be distributed over zones, nodes or whatever a label tells apart.

The rules are those of kube-scheduler's filter PodTopologySpread (pkg/scheduler/framework/plugins/podtopologyspread,
v1.34) for constraints with `DoNotSchedule`; those with `ScheduleAnyway` never refuse a node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from scheduler import selectors
from scheduler.objects import Node, Pod, SpreadConstraint
from scheduler.population import Population
from scheduler.selectors import Selector


class _Limit(msgspec.Struct, frozen=True):
    """One constraint: how many pods it counts in each domain, and how many there may be before `pod` comes."""

    key: str
    counts: Mapping[str, int]
    most: int


class SpreadRule(msgspec.Struct, frozen=True):
    """What topology spread asks of a node for one pod."""

    limits: tuple[_Limit, ...]

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Answer why a node with these labels is refused, empty where it is not."""
        for limit in self.limits:
            if limit.key not in labels:
                return "node didn't match pod topology spread constraints (missing required label)"
            if limit.counts.get(labels[limit.key], 0) > limit.most:
                return "node didn't match pod topology spread constraints"
        return ""


def rule(pod: Pod, *, population: Population, nodes: Mapping[str, Node]) -> SpreadRule | None:
    """Answer what topology spread asks for `pod`, None where it asks nothing."""
    constraints = strict(pod)
    if not constraints:
        return None
    keys = {constraint.topology_key for constraint in constraints}
    counted = [node for node in nodes.values() if keys <= node.metadata.labels.keys()]
    return SpreadRule(tuple(_limit(each, pod, population, counted) for each in constraints))


def strict(pod: Pod) -> list[SpreadConstraint]:
    """Answer the constraints that can refuse a node."""
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"]


def selector(constraint: SpreadConstraint, pod: Pod) -> Selector:
    """Answer which pods a constraint of `pod` counts."""
    chosen = selectors.label_selector(constraint.label_selector)
    if chosen is None:
        return None
    labels = pod.metadata.labels
    return selectors.of_labels({key: labels[key] for key in constraint.match_label_keys if key in labels}) + chosen


def _limit(constraint: SpreadConstraint, pod: Pod, population: Population, nodes: Iterable[Node]) -> _Limit:
    chosen = selector(constraint, pod)
    pods = _pods(chosen, pod.metadata.namespace, population)
    counts: dict[str, int] = {}
    for node in nodes:
        if _is_counted(constraint, pod, node):
            domain = node.metadata.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + pods[node.metadata.name]
    least = min(counts.values()) if len(counts) >= (constraint.min_domains or 1) else 0
    itself = selectors.accepts(chosen, pod.metadata.labels)
    return _Limit(constraint.topology_key, counts, constraint.max_skew + least - itself)


def _pods(chosen: Selector, namespace: str, population: Population) -> Counter[str]:
    """Count the pods of each node that a constraint means; an empty selector counts none, as in kube-scheduler."""
    pods: Counter[str] = Counter()
    if chosen:
        for crowd in population.of(namespace):
            if not crowd.is_leaving and selectors.accepts(chosen, crowd.labels):
                pods.update(crowd.nodes)
    return pods


def _is_counted(constraint: SpreadConstraint, pod: Pod, node: Node) -> bool:
    if constraint.node_affinity_policy == "Honor" and not selectors.matches_selector(pod.spec, node):
        return False
    return constraint.node_taints_policy != "Honor" or selectors.untolerated_taint(pod.spec, node) is None
