"""The sort key with which the first pod of a queue competes with those of other queues."""

from scheduler.queue.lanes import Order
from scheduler.queue.queue_order import Rank

Offer = tuple[int, int, int, str, int]
"""The tier of the queue, the priority of the pod, the share of the queue, the pod's age and arrival; the smallest comes
first."""


def offer(rank: Rank, order: Order) -> Offer:
    """Return the sort key of a pod in a queue of `rank`."""
    (tier, share), (priority, created, serial) = rank, order
    return tier, priority, share, created, serial
