"""More memory and compute than a card has, as HAMi's `deviceMemoryScaling` and `deviceCoreScaling` (hami.md 1.1)."""

from fractions import Fraction

import msgspec

from allocation.inventory import Card
from allocation.quantity import INT32_MAX

_MIG = "mig"


def scaled(card: Card, *, memory: float, cores: float) -> Card:
    """Answer `card` with its memory and compute multiplied, rounded down; one in MIG mode has what it has."""
    if card.mode == _MIG:
        return card
    return msgspec.structs.replace(card, memory_mib=_times(card.memory_mib, memory), cores=_times(card.cores, cores))


def _times(amount: int, factor: float) -> int:
    # By the decimal number that was written: 1.1 of 10,000 is 11,000.
    return min(int(amount * Fraction(str(factor))), INT32_MAX)
