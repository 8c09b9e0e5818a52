"""The required terms of inter-pod affinity and anti-affinity, read once per pod."""

from collections.abc import Mapping

import msgspec

from scheduler.objects import Pod, PodAffinity, PodAffinityTerm
from scheduler.selectors import Selector, accepts, label_selector

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace."""


class PodTerm(msgspec.Struct, frozen=True):
    """Pods, and the node label whose value says what is near them. Equal terms of two pods are one.

    Attributes:
        namespaces: where the pods are, besides those that `namespace_selector` takes.
        namespace_selector: takes namespaces by their labels.
        selector: takes the pods.
        topology_key: nodes with the same value of this label are near each other.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def covers(self, namespace: str, namespaces: Namespaces) -> bool:
        """Whether the term looks at pods of `namespace`."""
        return namespace in self.namespaces or accepts(self.namespace_selector, namespaces.get(namespace, {}))

    def matches(self, pod: Pod, namespaces: Namespaces) -> bool:
        """Whether the term means `pod`."""
        return self.covers(pod.metadata.namespace, namespaces) and accepts(self.selector, pod.metadata.labels)


def affinity(pod: Pod) -> tuple[PodTerm, ...]:
    """Answer the pods near which `pod` must be."""
    return _terms(pod, pod.spec.affinity.pod_affinity if pod.spec.affinity else None)


def anti_affinity(pod: Pod) -> tuple[PodTerm, ...]:
    """Answer the pods near which `pod` must not be, nor they near it."""
    return _terms(pod, pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None)


def _terms(pod: Pod, part: PodAffinity | None) -> tuple[PodTerm, ...]:
    return tuple(_read(term, pod.metadata.namespace) for term in part.required) if part else ()


def _read(term: PodAffinityTerm, own: str) -> PodTerm:
    """Read a term; one that says nothing of namespaces means the pod's `own`."""
    says_nothing = not term.namespaces and term.namespace_selector is None
    return PodTerm(
        namespaces=frozenset((own,) if says_nothing else term.namespaces),
        namespace_selector=label_selector(term.namespace_selector),
        selector=label_selector(term.label_selector),
        topology_key=term.topology_key,
    )
