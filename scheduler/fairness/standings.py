"""The standings of queues: what each has, is entitled to, and waits for."""

from collections.abc import Mapping

import msgspec

from allocation.fairness import shares
from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.fairness.shares import Share
from scheduler.fairness.fair_share import FairShare
from scheduler.fairness.use import Use


class Standing(msgspec.Struct, frozen=True):
    """One queue.

    Attributes:
        key: the queue.
        spec: what is set for it; the defaults for the own queue of a namespace.
        use: what its pods hold.
        waiting: its pods without a node.
        share: its dominant share.
        weights: the sum of the weights of all queues with pods, of which its weight is its entitlement.
    """

    key: QueueKey
    spec: QueueSpec
    use: Use
    waiting: int
    share: Share
    weights: int

    @property
    def weighted_share(self) -> float:
        """The dominant share divided by the weight."""
        return float(self.share) / self.spec.weight

    @property
    def entitlement(self) -> float:
        """The share to which the queue is entitled while all queues with pods want more."""
        return self.spec.weight / self.weights

    @property
    def excess(self) -> float:
        """By how much its share is above the entitlement; below 0 if it has less, and pods that wait."""
        if self.is_overused or self.is_underused:
            return float(self.share) - self.entitlement
        return 0.0

    @property
    def is_overused(self) -> bool:
        """Whether it has more than its entitlement."""
        return shares.is_overused(self.share, weight=self.spec.weight, of=self.weights)

    @property
    def is_underused(self) -> bool:
        """Whether it has less than its entitlement, and pods that wait."""
        return shares.is_underused(self.share, weight=self.spec.weight, of=self.weights, waiting=self.waiting)


class Standings:
    """The standings of all queues at one moment.

    Attributes:
        weights: the sum of the weights of all queues with pods.
    """

    def __init__(self, fair_share: FairShare, waiting: Mapping[QueueKey, int]) -> None:
        """Look at `fair_share`; `waiting` are the numbers of pods without a node."""
        self._fair_share = fair_share
        self._waiting = waiting
        self._active = {*waiting, *fair_share.use}
        self.weights = sum(fair_share.queues.spec(key).weight for key in self._active)

    def of(self, key: QueueKey) -> Standing:
        """Return the standing of a queue."""
        spec = self._fair_share.queues.spec(key)
        weights = self.weights if key in self._active else self.weights + spec.weight
        use, share = self._fair_share.use.of(key), self._fair_share.share(key)
        return Standing(key, spec, use, self._waiting.get(key, 0), share, weights)

    def all(self) -> list[Standing]:
        """Return the queues with pods and all GpuQueues, in the order in which a free card is offered to them."""
        existing = {QueueKey(name=each.metadata.name) for each in self._fair_share.queues}
        ordered = sorted(self._active | existing, key=lambda key: (self._fair_share.rank(key), key))
        return [self.of(key) for key in ordered]
