"""Overcommit of memory and compute, as HAMi's `deviceMemoryScaling` and `deviceCoreScaling` (docs/hami.md)."""

from fractions import Fraction

import msgspec

from allocation.inventory import Card
from allocation.quantity import INT32_MAX


def scaled(card: Card, *, memory: float, cores: float) -> Card:
    """Return `card`, which is not in MIG mode, with its memory and compute multiplied and rounded down."""
    return msgspec.structs.replace(card, memory_mib=_times(card.memory_mib, memory), cores=_times(card.cores, cores))


def _times(amount: int, factor: float) -> int:
    # The factor is taken as the decimal number that was written: 1.1 times 10,000 is 11,000.
    return min(int(amount * Fraction(str(factor))), INT32_MAX)
