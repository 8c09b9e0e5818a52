"""The terms of inter-pod affinity and anti-affinity, read once per pod."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from allocation.label_selector import Selector, accepts, label_selector
from scheduler.objects import Pod
from scheduler.pod_spec.constraints import PodAffinity, PodAffinityTerm

V = TypeVar("V")

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace."""


class PodTerm(msgspec.Struct, frozen=True):
    """A set of pods, and the node label that defines which nodes are near them. Equal terms of two pods are equal.

    Attributes:
        namespaces: the namespaces of the pods, in addition to those that `namespace_selector` matches.
        namespace_selector: matches namespaces by their labels.
        selector: matches the pods.
        topology_key: nodes with the same value of this label are near each other.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def covers(self, namespace: str, namespaces: Namespaces) -> bool:
        """Whether the term applies to pods in `namespace`."""
        return namespace in self.namespaces or accepts(self.namespace_selector, namespaces.get(namespace, {}))

    def matches(self, pod: Pod, namespaces: Namespaces) -> bool:
        """Whether the term matches `pod`."""
        return self.covers(pod.metadata.namespace, namespaces) and accepts(self.selector, pod.metadata.labels)


WeightedTerm = tuple[PodTerm, int]
"""A term, and what a node that is near such a pod gains by it."""


class TermIndex(Generic[V]):
    """A map from terms to values, indexed by the namespaces of the pods that a term may match."""

    def __init__(self) -> None:
        self._by_namespace: defaultdict[str, dict[PodTerm, V]] = defaultdict(dict)
        self._selecting: dict[PodTerm, V] = {}

    def get(self, term: PodTerm) -> V | None:
        """Return the value of `term`."""
        return next((values[term] for values in self._maps(term) if term in values), None)

    def set(self, term: PodTerm, value: V) -> None:
        """Set the value of `term`."""
        for values in self._maps(term):
            values[term] = value

    def remove(self, term: PodTerm) -> None:
        """Remove `term`."""
        for values in self._maps(term):
            del values[term]
        for namespace in term.namespaces:
            if not self._by_namespace[namespace]:
                del self._by_namespace[namespace]

    def about(self, namespace: str) -> Iterator[tuple[PodTerm, V]]:
        """Iterate over the terms that may match pods in `namespace`."""
        yield from self._by_namespace.get(namespace, {}).items()
        yield from self._selecting.items()

    def _maps(self, term: PodTerm) -> list[dict[PodTerm, V]]:
        if term.namespace_selector is not None:
            return [self._selecting]
        return [self._by_namespace[namespace] for namespace in term.namespaces]


def affinity(pod: Pod) -> tuple[PodTerm, ...]:
    """Return the terms for the pods near which `pod` must be."""
    return _terms(pod, pod.spec.affinity.pod_affinity if pod.spec.affinity else None)


def anti_affinity(pod: Pod) -> tuple[PodTerm, ...]:
    """Return the terms for the pods that must not be near `pod`."""
    return _terms(pod, pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None)


def preferences(pod: Pod) -> tuple[WeightedTerm, ...]:
    """Return the preferred terms of `pod`; the weights of anti-affinity are negative."""
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    parts = ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1))
    return tuple(
        (_read(each.pod_affinity_term, pod.metadata.namespace), sign * each.weight)
        for part, sign in parts
        if part is not None
        for each in part.preferred
    )


def _terms(pod: Pod, part: PodAffinity | None) -> tuple[PodTerm, ...]:
    return tuple(_read(term, pod.metadata.namespace) for term in part.required) if part else ()


def _read(term: PodAffinityTerm, own: str) -> PodTerm:
    """Read a term; without namespaces and namespaceSelector it applies to the pod's `own` namespace."""
    is_own = not term.namespaces and term.namespace_selector is None
    return PodTerm(
        namespaces=frozenset((own,) if is_own else term.namespaces),
        namespace_selector=label_selector(term.namespace_selector),
        selector=label_selector(term.label_selector),
        topology_key=term.topology_key,
    )
