"""Which queues may take back what they are owed, and from which (docs/queues.md#reclaim).

A queue is owed what it has less than its entitlement. It takes that from queues that have more than theirs, and never
so much that it has more than its own afterwards, or they less. So the weighted share of the queue that takes is never
above that of the one that gives, however many queues have pods later: none takes back what was taken from it before
other pods have come and gone.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from allocation.fairness.shares import NOTHING, Amounts, added, dominant

Reclaim = Literal["Never", "WithinTier", "Always"]
"""From whose pods a queue reclaims: no queue's, those of its own tier, or also those of lower tiers."""

WINDOW_SECONDS: Final = 3600.0
"""In so much time a queue reclaims at most what it is entitled to."""
_MOST: Final = 4096
"""The most reclaims of one queue that are remembered; until the oldest is forgotten, it reclaims no more."""


class Rank(msgspec.Struct, frozen=True):
    """The tier of a pod's queue, and the priority of the pod."""

    tier: int
    priority: int


def may_take(reclaim: Reclaim, *, taker: Rank, holder: Rank) -> bool:
    """Whether a pod of rank `taker` may reclaim from one of rank `holder`, as far as their ranks matter.

    What becomes free is offered to the highest rank first, and pods of a higher priority preempt those of a lower one.
    So a pod of a higher rank would only take its cards back.
    """
    if reclaim == "Never" or holder.tier > taker.tier:
        return False
    if holder.tier == taker.tier:
        return holder.priority <= taker.priority
    return reclaim == "Always"


class Holding(msgspec.Struct, frozen=True):
    """What the pods of a queue hold, and its weight."""

    amounts: Amounts
    weight: int


class Entitlements(msgspec.Struct, frozen=True):
    """What there is to share.

    Attributes:
        total: the sums over all cards and nodes.
        weights: the sum of the weights of all queues with pods.
    """

    total: Amounts
    weights: int

    def is_owed(self, holding: Holding) -> bool:
        """Whether a queue has less than its entitlement."""
        return dominant(holding.amounts, self.total).is_below(holding.weight, self.weights)

    def has_surplus(self, holding: Holding) -> bool:
        """Whether a queue has more than its entitlement."""
        return dominant(holding.amounts, self.total).is_above(holding.weight, self.weights)


class Turnover:
    """What each queue has reclaimed lately, so that pods that come and go cannot have others evicted without end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without any; `clock` is in seconds."""
        self._clock = clock
        self._taken: dict[str, dict[str, tuple[float, Amounts]]] = {}

    def note(self, queue: str, uid: str, amounts: Amounts) -> None:
        """Note that a queue reclaims for a pod; a pod that reclaims again counts again as long as both are recent."""
        taken = self._taken.setdefault(queue, {})
        _, before = taken.pop(uid, (0.0, NOTHING))
        taken[uid] = self._clock(), added(before, amounts)

    def forget(self, queue: str, uid: str) -> None:
        """Note that nothing was reclaimed for a pod after all."""
        self._taken.get(queue, {}).pop(uid, None)

    def allows(self, queue: str, more: Holding, entitlements: Entitlements) -> bool:
        """Whether a queue may reclaim `more` within the window."""
        taken, ended = self._taken.get(queue, {}), self._clock() - WINDOW_SECONDS
        for uid, (since, _) in tuple(taken.items()):
            if since > ended:
                break
            del taken[uid]
        amounts = more.amounts
        for _, each in taken.values():
            amounts = added(amounts, each)
        return len(taken) < _MOST and not entitlements.has_surplus(Holding(amounts, more.weight))
