"""The pods on nodes, indexed for inter-pod rules: pods that no rule can distinguish are counted together.

The cost of a scheduling decision therefore depends on the number of different label sets, not on the number of pods.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from scheduler.filters import affinity_terms
from scheduler.filters.affinity_terms import Namespaces, PodTerm, TermIndex, WeightedTerm
from scheduler.objects import Pod

_Key = tuple[frozenset[tuple[str, str]], bool]

NodeWeight = tuple[str, int]
"""A node with a pod that has a term, and the weight of this term."""

_REQUIRED_WEIGHT: Final = 1
"""What required affinity counts as a preference of the pods that it matches: kube-scheduler's hardPodAffinityWeight."""


K = TypeVar("K", bound=Hashable)


class PodGroup(msgspec.Struct, eq=False):
    """The pods of one namespace with the same labels.

    Attributes:
        is_terminating: whether they are being deleted; topology spread does not count them any more.
        nodes: how many of them each node has.
    """

    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    nodes: Counter[str]


class IndexedPod(msgspec.Struct, frozen=True, eq=False):
    """What the index keeps of one pod: its node, its group, the terms of its anti-affinity, and its preferences."""

    node: str
    group: PodGroup
    anti_affinity: tuple[PodTerm, ...]
    preferences: tuple[WeightedTerm, ...]


class PodIndex:
    """All pods that have a node."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, dict[_Key, PodGroup]] = defaultdict(dict)
        self._repelling: TermIndex[Counter[str]] = TermIndex()
        self._preferring: TermIndex[Counter[NodeWeight]] = TermIndex()

    def add(self, pod: Pod, node: str) -> IndexedPod:
        """Count a pod on `node`."""
        meta = pod.metadata
        groups, key = self._groups[meta.namespace], (frozenset(meta.labels.items()), bool(meta.deletion_timestamp))
        group = groups.get(key)
        if group is None:
            group = groups[key] = PodGroup(meta.namespace, meta.labels, key[1], Counter())
        required = ((term, _REQUIRED_WEIGHT) for term in affinity_terms.affinity(pod))
        indexed = IndexedPod(
            node, group, affinity_terms.anti_affinity(pod), (*affinity_terms.preferences(pod), *required)
        )
        group.nodes[node] += 1
        for term in indexed.anti_affinity:
            _increase(self._repelling, term, node)
        for term, weight in indexed.preferences:
            _increase(self._preferring, term, (node, weight))
        return indexed

    def remove(self, indexed: IndexedPod) -> None:
        """Stop counting a pod."""
        group = indexed.group
        if _decrease(group.nodes, indexed.node):
            groups = self._groups[group.namespace]
            del groups[frozenset(group.labels.items()), group.is_terminating]
            if not groups:
                del self._groups[group.namespace]
        for term in indexed.anti_affinity:
            nodes = self._repelling.get(term)
            if nodes is not None and _decrease(nodes, indexed.node):
                self._repelling.remove(term)
        for term, weight in indexed.preferences:
            weights = self._preferring.get(term)
            if weights is not None and _decrease(weights, (indexed.node, weight)):
                self._preferring.remove(term)

    def of(self, namespace: str) -> Iterable[PodGroup]:
        """Return the groups of a namespace."""
        return self._groups.get(namespace, {}).values()

    def covered(self, term: PodTerm, namespaces: Namespaces) -> Iterator[PodGroup]:
        """Iterate over the groups in the namespaces of `term`."""
        candidates = self._groups if term.namespace_selector is not None else term.namespaces & self._groups.keys()
        for namespace in candidates:
            if term.covers(namespace, namespaces):
                yield from self._groups[namespace].values()

    def repelling(self, pod: Pod, namespaces: Namespaces) -> Iterator[tuple[PodTerm, Iterable[str]]]:
        """Iterate over the anti-affinity terms of other pods that match `pod`, with the nodes of those pods."""
        for term, nodes in self._repelling.about(pod.metadata.namespace):
            if term.matches(pod, namespaces):
                yield term, nodes

    def preferring(self, pod: Pod, namespaces: Namespaces) -> Iterator[tuple[PodTerm, Mapping[NodeWeight, int]]]:
        """Iterate over the terms of other pods that attract or repel `pod`, with how many pods have them where.

        These are their preferred terms and, as a preference of `pod`, those of their required affinity.
        """
        for term, weights in self._preferring.about(pod.metadata.namespace):
            if term.matches(pod, namespaces):
                yield term, weights


def _increase(index: TermIndex[Counter[K]], term: PodTerm, key: K) -> None:
    counts = index.get(term)
    if counts is None:
        counts = Counter()
        index.set(term, counts)
    counts[key] += 1


def _decrease(counts: Counter[K], key: K) -> bool:
    """Subtract one from the count of `key`; return whether nothing is left."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
    return not counts
