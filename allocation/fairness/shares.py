"""Dominant shares, in exact integers (docs/queues.md#order).

The share of a queue is the largest of its shares of each resource. A queue is entitled to its weight divided by the
weights of all queues that have pods.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

Amounts = tuple[int, int, int, int, int, int]
"""Of cards: memory in MiB, compute in millicards, slots, compute in thousandths of TFLOPs; of their nodes: CPU in
millicores, memory in bytes."""

NOTHING: Final[Amounts] = (0, 0, 0, 0, 0, 0)
OF_CARDS: Final = 4
"""The first dimensions are those of cards."""

_SCALE: Final = 128
"""Bits behind the point of a scaled share. Different shares differ by more than 2^-128 as long as the product of their
totals and weights stays below that, which 10,000 nodes of 16 TiB and 16 cards with weights of 10,000 do."""
_INFINITE: Final = 1 << 2 * _SCALE


def added(left: Amounts, right: Amounts) -> Amounts:
    """Return the sums."""
    memory, cores, slots, tflops, cpu, bytes_ = right
    return left[0] + memory, left[1] + cores, left[2] + slots, left[3] + tflops, left[4] + cpu, left[5] + bytes_


def subtracted(left: Amounts, right: Amounts) -> Amounts:
    """Return the differences."""
    memory, cores, slots, tflops, cpu, bytes_ = right
    return left[0] - memory, left[1] - cores, left[2] - slots, left[3] - tflops, left[4] - cpu, left[5] - bytes_


class Share(msgspec.Struct, frozen=True):
    """The dominant share of a queue: `used / total` of one resource.

    Attributes:
        used: what its pods hold.
        total: what there is; 0 with `used` above 0 is an infinite share.
        dimension: of which resource, by its position in `Amounts`.
    """

    used: int = 0
    total: int = 1
    dimension: int = 0

    def is_above(self, weight: int, of: int) -> bool:
        """Whether the share is above the entitlement `weight / of`."""
        return self.used * of > self.total * weight

    def is_below(self, weight: int, of: int) -> bool:
        """Whether the share is below the entitlement `weight / of`."""
        return self.used * of < self.total * weight

    def __float__(self) -> float:
        """Return the share as people read it."""
        return self.used / self.total if self.total else float("inf")


def dominant(used: Sequence[int], total: Sequence[int]) -> Share:
    """Return the largest share; of equal ones, that of the first resource.

    A resource that does not exist counts only if it is one of cards and in use: then the share is infinite.
    """
    most, of, best = 0, 1, 0
    for dimension, held in enumerate(used):
        if not held:
            continue
        there_is = total[dimension]
        if there_is:
            if held * of > most * there_is:
                most, of, best = held, there_is, dimension
        elif dimension < OF_CARDS:
            return Share(held, 0, dimension)
    return Share(most, of, best)


def scaled(used: Sequence[int], total: Sequence[int], weight: int) -> int:
    """Return the dominant share divided by `weight` as an integer: equal for equal shares, larger for larger ones."""
    share = dominant(used, total)
    return (share.used << _SCALE) // (share.total * weight) if share.total else _INFINITE


def is_underused(share: Share, *, weight: int, of: int, waiting: int) -> bool:
    """Whether a queue has less than its entitlement, and pods that wait."""
    return waiting > 0 and share.is_below(weight, of)


def is_overused(share: Share, *, weight: int, of: int) -> bool:
    """Whether a queue has more than its entitlement."""
    return share.is_above(weight, of)
