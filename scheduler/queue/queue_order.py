"""Which queue a waiting pod belongs to, and the order of the queues."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.fairness.shares import NOTHING, Amounts
from scheduler.objects import Pod

Rank = tuple[int, int]
"""The tier of a queue, negated, and its weighted share: the smallest comes first, of pods of one priority."""


class WaitingDemand(msgspec.Struct, frozen=True):
    """What the pods of a queue require that wait for cards or nodes to become free.

    Attributes:
        amounts: the sums of what they request.
        pods: their number.
    """

    amounts: Amounts
    pods: int


NO_DEMAND: Final = WaitingDemand(NOTHING, 0)


class QueueOrder(Protocol):
    """The order in which queues get what is free: by their shares."""

    def key(self, pod: Pod) -> QueueKey:
        """Return the queue of a pod without a node."""

    def rank(self, key: QueueKey) -> Rank:
        """Return the rank of a queue now."""

    def is_strict(self, key: QueueKey) -> bool:
        """Whether the younger pods of a queue wait behind the first one."""

    def is_blocked(self, key: QueueKey, waiting: Mapping[QueueKey, WaitingDemand]) -> bool:
        """Whether a queue of a higher tier has less than is desired for it, and pods among those `waiting`."""
