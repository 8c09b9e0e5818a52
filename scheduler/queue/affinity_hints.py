"""Which waiting pods have rules about other pods, and so may become schedulable when another pod comes or changes."""

from collections import Counter, defaultdict
from typing import Final

import msgspec

from allocation.label_selector import Selector, accepts
from scheduler.filters import affinity_terms, topology_spread
from scheduler.filters.affinity_terms import Namespaces, PodTerm, TermIndex
from scheduler.objects import Pod

_MANY: Final = 64
"""With more terms or selectors to compare than this, any pod counts as a match: retries cost the budget of the waiting
pods' namespaces, but comparisons delay all."""


class _Interest(msgspec.Struct, frozen=True):
    """The rules of one pod: its affinity and anti-affinity terms, and the selectors of its spread constraints."""

    namespace: str
    terms: tuple[PodTerm, ...]
    peers: tuple[Selector, ...]


class AffinityHints:
    """The rules of the pods without a node about other pods; equal terms of many pods are compared once."""

    def __init__(self) -> None:
        self._interests: dict[str, _Interest] = {}
        self._terms: TermIndex[int] = TermIndex()
        self._peers: defaultdict[str, Counter[Selector]] = defaultdict(Counter)

    def add(self, pod: Pod) -> None:
        """Add a waiting pod, or replace its state."""
        self.remove(pod.uid)
        terms = affinity_terms.affinity(pod) + affinity_terms.anti_affinity(pod)
        peers = tuple(topology_spread.selector(constraint, pod) for constraint in topology_spread.strict(pod))
        if not terms and not peers:
            return
        self._interests[pod.uid] = _Interest(pod.metadata.namespace, terms, peers)
        for term in terms:
            self._terms.set(term, (self._terms.get(term) or 0) + 1)
        self._peers[pod.metadata.namespace].update(peers)

    def remove(self, uid: str) -> None:
        """Forget a pod that does not wait any more."""
        interest = self._interests.pop(uid, None)
        if interest is None:
            return
        for term in interest.terms:
            count = (self._terms.get(term) or 0) - 1
            if count > 0:
                self._terms.set(term, count)
            else:
                self._terms.remove(term)
        peers = self._peers[interest.namespace]
        peers.subtract(interest.peers)
        for each in interest.peers:
            if not peers[each]:
                del peers[each]
        if not peers:
            del self._peers[interest.namespace]

    def may_unblock(self, pod: Pod, namespaces: Namespaces) -> bool:
        """Whether a rule of a waiting pod matches `pod`, or may match it."""
        peers = self._peers.get(pod.metadata.namespace, ())
        if len(peers) > _MANY or any(accepts(each, pod.metadata.labels) for each in peers):
            return True
        for position, (term, _) in enumerate(self._terms.about(pod.metadata.namespace)):
            if position >= _MANY or term.matches(pod, namespaces):
                return True
        return False
