"""The nodes to which pods with `resourceClaims` were not bound: `/filter` rejects them for a while.

When `/bind` is refused, kube-scheduler keeps the devices that it has allocated for the pod, which tie the pod to that
node: it would come to `/bind` there again and again. A pod that no node takes gives its devices back.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from allocation.ledger.ledger import Ledger
from scheduler.objects import Pod

_SHORTEST_SECONDS: Final = 2.0
"""kube-scheduler tries a pod again after a second at the earliest, and has to find it rejected once."""
_LONGEST_SECONDS: Final = 10.0
_MOST_NODES: Final = 32
"""The most nodes that are remembered for a pod; the oldest one is forgotten."""


class _Refusal(msgspec.Struct, frozen=True):
    at: float
    mark: int
    why: str


class RefusedNodes:
    """The last refusals of each pod by node."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float]) -> None:
        """Let a node be tried again, after a moment, once `ledger` has logged a change of it that may help."""
        self._ledger = ledger
        self._clock = clock
        self._refusals: dict[str, dict[str, _Refusal]] = {}

    def note(self, pod: Pod, node: str, why: str) -> None:
        """Note that a pod was not bound to a node, and why."""
        if not pod.spec.resource_claims:
            return
        of_pod = self._refusals.setdefault(pod.uid, {})
        of_pod.pop(node, None)
        of_pod[node] = _Refusal(self._clock(), self._ledger.changes.mark, why)
        while len(of_pod) > _MOST_NODES:
            del of_pod[next(iter(of_pod))]

    def of(self, pod: Pod) -> dict[str, str]:
        """Return why some nodes do not take a pod for now, by node."""
        refusals = self._refusals.get(pod.uid, {})
        return {node: each.why for node, each in refusals.items() if self._counts(node, each)}

    def forget_ended(self) -> Iterable[str]:
        """Forget the refusals that do not count any more; return the UIDs of their pods."""
        ended = []
        for uid, refusals in tuple(self._refusals.items()):
            for node, each in tuple(refusals.items()):
                if not self._counts(node, each):
                    del refusals[node]
                    ended.append(uid)
            if not refusals:
                del self._refusals[uid]
        return ended

    def _counts(self, node: str, refusal: _Refusal) -> bool:
        age = self._clock() - refusal.at
        return age < _SHORTEST_SECONDS or (age < _LONGEST_SECONDS and not self._has_improved(node, refusal.mark))

    def _has_improved(self, node: str, mark: int) -> bool:
        """Whether anything has changed of a node since `mark` but that more of it is taken."""
        changed = self._ledger.changes.since(mark)
        return changed is None or self._ledger.row(node) in changed
