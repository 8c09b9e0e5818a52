"""What queues of several tiers would have if the highest tiers were served first (docs/queues.md#tiers).

While a queue has less than that and pods that wait for it, lower tiers wait.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.fairness.shares import Amounts


class Demand(msgspec.Struct, frozen=True):
    """What the pods of a queue hold and wait for.

    Attributes:
        key: the queue.
        spec: its priority, instances and batches.
        created: when the queue was created, as the API server writes times; of one priority, the oldest comes first.
        amounts: of all its pods that run, or wait for cards or nodes to become free.
        pods: their number.
    """

    key: QueueKey
    spec: QueueSpec
    created: str
    amounts: Amounts
    pods: int

    def clamped(self) -> Amounts:
        """Return the demand in whole batches, between the least and the most instances.

        Pods of different sizes count as the same number of their mean size.
        """
        spec, pods = self.spec, self.pods - self.pods % self.spec.batch_size
        pods = max(pods, spec.min_instances)
        if spec.max_instances is not None:
            pods = min(pods, spec.max_instances)
        return _scaled(self.amounts, pods, max(self.pods, 1))


def desired(demands: Iterable[Demand], total: Sequence[int]) -> dict[QueueKey, Amounts]:
    """Return what each queue would have: demands in order of priority, then age, out of what is left of `total`."""
    left, granted = [*total], dict[QueueKey, Amounts]()
    for demand in sorted(demands, key=lambda each: (-each.spec.priority, each.created, each.key)):
        grant = _least(demand.clamped(), left)
        left = [amount - taken for amount, taken in zip(left, grant, strict=True)]
        granted[demand.key] = grant
    return granted


def is_short(held: Sequence[int], desired: Sequence[int]) -> bool:
    """Whether a queue has less of any resource than is desired for it."""
    return any(has < wants for has, wants in zip(held, desired, strict=True))


def _least(left: Sequence[int], right: Sequence[int]) -> Amounts:
    memory, cores, slots, cpu, bytes_ = (min(pair) for pair in zip(left, right, strict=True))
    return memory, cores, slots, cpu, bytes_


def _scaled(amounts: Amounts, by: int, of: int) -> Amounts:
    memory, cores, slots, cpu, bytes_ = (amount * by // of for amount in amounts)
    return memory, cores, slots, cpu, bytes_
