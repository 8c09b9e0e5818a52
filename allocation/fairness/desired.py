"""What queues of several tiers would have if the highest tiers were served first (docs/queues.md#tiers).

While a queue has less than that and pods that wait for it, lower tiers wait.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.fairness.shares import Amounts, subtracted


class Demand(msgspec.Struct, frozen=True):
    """What the pods of a queue hold and wait for.

    Attributes:
        key: the queue.
        spec: its priority, instances and batches.
        amounts: of all its pods that run, or wait for cards or nodes to become free.
        pods: their number.
    """

    key: QueueKey
    spec: QueueSpec
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
        return self.amounts if pods == self.pods else _scaled(self.amounts, pods, max(self.pods, 1))


Precedence = tuple[int, str, QueueKey]
"""The sort key of a queue among those of all tiers: by priority, then age."""


def precedence(key: QueueKey, spec: QueueSpec, created: str) -> Precedence:
    """Return the sort key of a queue that was `created` at a time, as the API server writes it."""
    return -spec.priority, created, key


def desired(demands: Iterable[Demand], total: Amounts) -> Iterator[tuple[QueueKey, Amounts]]:
    """Yield what each queue would have out of what is left of `total`; `demands` are in the order of `precedence`."""
    left = total
    for demand in demands:
        grant = _least(demand.clamped(), left)
        left = subtracted(left, grant)
        yield demand.key, grant


def is_short(held: Sequence[int], desired: Sequence[int]) -> bool:
    """Whether a queue has less of any resource than is desired for it."""
    return any(has < wants for has, wants in zip(held, desired, strict=True))


def _least(left: Sequence[int], right: Sequence[int]) -> Amounts:
    memory, cores, slots, tflops, cpu, bytes_ = map(min, left, right)
    return memory, cores, slots, tflops, cpu, bytes_


def _scaled(amounts: Amounts, by: int, of: int) -> Amounts:
    memory, cores, slots, tflops, cpu, bytes_ = (amount * by // of for amount in amounts)
    return memory, cores, slots, tflops, cpu, bytes_
