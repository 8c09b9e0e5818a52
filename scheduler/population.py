"""Who runs where, as inter-pod rules look at it: the pods that no rule can tell apart are counted together.

A decision then costs as much as there are different labels, not as there are pods.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from scheduler import pod_terms
from scheduler.objects import Pod
from scheduler.pod_terms import Namespaces, PodTerm

_Key = tuple[frozenset[tuple[str, str]], bool]


class Crowd(msgspec.Struct, eq=False):
    """Pods of one namespace with the same labels, and how many of them each node has.

    Attributes:
        is_leaving: whether they are being deleted; spreading does not count them any more.
    """

    namespace: str
    labels: dict[str, str]
    is_leaving: bool
    nodes: Counter[str]


class Member(msgspec.Struct, frozen=True, eq=False):
    """One pod's part in the population."""

    node: str
    crowd: Crowd
    repels: tuple[PodTerm, ...]


class Population:
    """All pods that have a node."""

    def __init__(self) -> None:
        self._crowds: defaultdict[str, dict[_Key, Crowd]] = defaultdict(dict)
        self._repellers: defaultdict[PodTerm, Counter[str]] = defaultdict(Counter)

    def join(self, pod: Pod, node: str) -> Member:
        """Count a pod."""
        meta = pod.metadata
        crowds, key = self._crowds[meta.namespace], (frozenset(meta.labels.items()), bool(meta.deletion_timestamp))
        crowd = crowds.get(key)
        if crowd is None:
            crowd = crowds[key] = Crowd(meta.namespace, meta.labels, key[1], Counter())
        member = Member(node, crowd, pod_terms.anti_affinity(pod))
        crowd.nodes[node] += 1
        for term in member.repels:
            self._repellers[term][node] += 1
        return member

    def leave(self, member: Member) -> None:
        """Count a pod no longer."""
        crowd = member.crowd
        if _decrease(crowd.nodes, member.node):
            crowds = self._crowds[crowd.namespace]
            del crowds[frozenset(crowd.labels.items()), crowd.is_leaving]
            if not crowds:
                del self._crowds[crowd.namespace]
        for term in member.repels:
            if _decrease(self._repellers[term], member.node):
                del self._repellers[term]

    def of(self, namespace: str) -> Iterable[Crowd]:
        """Answer the crowds of a namespace."""
        return self._crowds.get(namespace, {}).values()

    def covered(self, term: PodTerm, namespaces: Namespaces) -> Iterator[Crowd]:
        """Iterate over the crowds in the namespaces that `term` looks at."""
        for namespace, crowds in self._crowds.items():
            if term.covers(namespace, namespaces):
                yield from crowds.values()

    def repelling(self, pod: Pod, namespaces: Namespaces) -> Iterator[tuple[PodTerm, Iterable[str]]]:
        """Iterate over the terms by which pods that run keep `pod` away, and over the nodes of those pods."""
        for term, nodes in self._repellers.items():
            if term.matches(pod, namespaces):
                yield term, nodes


def _decrease(counts: Counter[str], node: str) -> bool:
    """Take one off; answer whether nothing is left."""
    counts[node] -= 1
    if not counts[node]:
        del counts[node]
    return not counts
