"""Which waiting pods look at other pods, and so may be helped when one of those comes or changes."""

import msgspec

from scheduler import pod_terms, selectors, spread
from scheduler.objects import Pod
from scheduler.pod_terms import Namespaces, PodTerm
from scheduler.selectors import Selector


class _Interest(msgspec.Struct, frozen=True):
    """What one pod looks at: terms of its affinity and anti-affinity, and what it spreads among in its namespace."""

    namespace: str
    terms: tuple[PodTerm, ...]
    peers: tuple[Selector, ...]


class Interests:
    """The pods without a node that look at others."""

    def __init__(self) -> None:
        self._interests: dict[str, _Interest] = {}

    def add(self, pod: Pod) -> None:
        """Take a waiting pod, or its new state."""
        terms = pod_terms.affinity(pod) + pod_terms.anti_affinity(pod)
        peers = tuple(spread.selector(constraint, pod) for constraint in spread.strict(pod))
        if terms or peers:
            self._interests[pod.uid] = _Interest(pod.metadata.namespace, terms, peers)
        else:
            self._interests.pop(pod.uid, None)

    def remove(self, uid: str) -> None:
        """Forget a pod that waits no longer."""
        self._interests.pop(uid, None)

    def concerns(self, pod: Pod, namespaces: Namespaces) -> bool:
        """Whether a waiting pod looks at `pod`."""
        return any(_looks(interest, pod, namespaces) for interest in self._interests.values())


def _looks(interest: _Interest, pod: Pod, namespaces: Namespaces) -> bool:
    if any(term.matches(pod, namespaces) for term in interest.terms):
        return True
    return interest.namespace == pod.metadata.namespace and any(
        selectors.accepts(peers, pod.metadata.labels) for peers in interest.peers
    )
