"""Inter-pod affinity and anti-affinity: near whom a pod must, and must not, be.

The rules are those of kube-scheduler's filter InterPodAffinity (pkg/scheduler/framework/plugins/interpodaffinity,
v1.34), without its regression that a namespaceSelector with NotIn or DoesNotExist means every namespace
(kubernetes/kubernetes#141526). Pods on nodes that are not there have no place and count for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from scheduler import pod_terms
from scheduler.objects import Node, Pod
from scheduler.pod_terms import Namespaces, PodTerm
from scheduler.population import Population
from scheduler.selectors import accepts

Domains = Mapping[str, set[str]]
"""Values by topology key."""


class AffinityRule(msgspec.Struct, frozen=True):
    """What inter-pod affinity asks of a node for one pod.

    Attributes:
        wanted: the keys that a node must have for the pod's affinity.
        near: where pods are that meet all of the pod's affinity.
        is_first: no such pod is anywhere and the pod itself is one: it may go wherever the keys are.
        unwanted: where pods are that the pod avoids.
        repelled: where pods are that avoid the pod.
    """

    wanted: tuple[str, ...]
    near: Domains
    is_first: bool
    unwanted: Domains
    repelled: Domains

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Answer why a node with these labels is refused, empty where it is not."""
        if not all(key in labels for key in self.wanted):
            return "node didn't match pod affinity rules"
        if not self.is_first and not all(labels[key] in self.near.get(key, ()) for key in self.wanted):
            return "node didn't match pod affinity rules"
        if _is_in(labels, self.unwanted):
            return "node didn't match pod anti-affinity rules"
        if _is_in(labels, self.repelled):
            return "node didn't satisfy existing pods anti-affinity rules"
        return ""


def rule(pod: Pod, *, population: Population, nodes: Mapping[str, Node], namespaces: Namespaces) -> AffinityRule | None:
    """Answer what inter-pod affinity asks for `pod`, None where it asks nothing."""
    wanted, unwanted = pod_terms.affinity(pod), pod_terms.anti_affinity(pod)
    repelled: defaultdict[str, set[str]] = defaultdict(set)
    for term, homes in population.repelling(pod, namespaces):
        _add(repelled, term, homes, nodes)
    if not wanted and not unwanted and not repelled:
        return None
    near: defaultdict[str, set[str]] = defaultdict(set)
    for crowd in population.covered(wanted[0], namespaces) if wanted else ():
        # One pod must meet all terms; it does not do to meet each by another.
        if all(term.covers(crowd.namespace, namespaces) and accepts(term.selector, crowd.labels) for term in wanted):
            for term in wanted:
                _add(near, term, crowd.nodes, nodes)
    avoided: defaultdict[str, set[str]] = defaultdict(set)
    for term in unwanted:
        for crowd in population.covered(term, namespaces):
            if accepts(term.selector, crowd.labels):
                _add(avoided, term, crowd.nodes, nodes)
    return AffinityRule(
        wanted=tuple(term.topology_key for term in wanted),
        near=near,
        is_first=not near and all(term.matches(pod, namespaces) for term in wanted),
        unwanted=avoided,
        repelled=repelled,
    )


def _add(domains: defaultdict[str, set[str]], term: PodTerm, homes: Iterable[str], nodes: Mapping[str, Node]) -> None:
    """Note the values of the term's key on these nodes."""
    for name in homes:
        node = nodes.get(name)
        value = node.metadata.labels.get(term.topology_key) if node is not None else None
        if value is not None:
            domains[term.topology_key].add(value)


def _is_in(labels: Mapping[str, str], domains: Domains) -> bool:
    return any(labels.get(key) in values for key, values in domains.items())
