"""The pods on nodes, indexed for inter-pod rules: pods that no rule can distinguish are counted together.

The cost of a scheduling decision therefore depends on the number of different label sets, not on the number of pods.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from scheduler.filters import affinity_terms
from scheduler.filters.affinity_terms import Namespaces, PodTerm, TermIndex
from scheduler.objects import Pod

_Key = tuple[frozenset[tuple[str, str]], bool]


class PodGroup(msgspec.Struct, eq=False):
    """The pods of one namespace with the same labels.

    Attributes:
        is_terminating: whether they are being deleted; topology spread does not count them any more.
        nodes: how many of them each node has.
    """

    namespace: str
    labels: dict[str, str]
    is_terminating: bool
    nodes: Counter[str]


class IndexedPod(msgspec.Struct, frozen=True, eq=False):
    """What the index keeps of one pod: its node, its group, and the terms of its anti-affinity."""

    node: str
    group: PodGroup
    anti_affinity: tuple[PodTerm, ...]


class PodIndex:
    """All pods that have a node."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, dict[_Key, PodGroup]] = defaultdict(dict)
        self._repelling: TermIndex[Counter[str]] = TermIndex()

    def add(self, pod: Pod, node: str) -> IndexedPod:
        """Count a pod on `node`."""
        meta = pod.metadata
        groups, key = self._groups[meta.namespace], (frozenset(meta.labels.items()), bool(meta.deletion_timestamp))
        group = groups.get(key)
        if group is None:
            group = groups[key] = PodGroup(meta.namespace, meta.labels, key[1], Counter())
        indexed = IndexedPod(node, group, affinity_terms.anti_affinity(pod))
        group.nodes[node] += 1
        for term in indexed.anti_affinity:
            nodes = self._repelling.get(term)
            if nodes is None:
                nodes = Counter()
                self._repelling.set(term, nodes)
            nodes[node] += 1
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


def _decrease(counts: Counter[str], node: str) -> bool:
    """Subtract one from the count of `node`; return whether no node is left."""
    counts[node] -= 1
    if not counts[node]:
        del counts[node]
    return not counts
