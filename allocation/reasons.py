"""Why a card or a node was not chosen. Reasons are data: events, answers and explanations all print these."""

import enum
from collections.abc import Mapping


class CardReason(enum.IntEnum):
    """Verdict on one card; the order is HAMi's order of tests (hami.md 2.2), the first that fails wins."""

    FITS = 0
    CardNotHealth = 1
    CardCordoned = 2
    CardTypeMismatch = 3
    NumaNotFit = 4
    CardUuidMismatch = 5
    CardTimeSlicingExhausted = 6
    ExclusiveDeviceAllocateConflict = 7
    ResourceQuotaNotFit = 8
    CardInsufficientMemory = 9
    CardInsufficientCore = 10
    CardComputeUnitsExhausted = 11
    CardMigTopologyInfeasible = 12
    """The card is in MIG mode and has no place for an instance that is large enough."""
    AllocatedCardsInsufficientRequest = 13
    """The card fits, but too few of its neighbours do."""
    ModeNotFit = 14
    """The card is in MIG mode and HAMi's device plugin makes its instances: it makes none for our pods."""


NODE_INSUFFICIENT_DEVICE = "NodeInsufficientDevice"
"""The node has fewer cards than one container asks for."""
NODE_UNREGISTERED = "NodeUnregistered"
"""No agent reports cards for the node."""

ReasonCounts = Mapping[CardReason, int]


def summary(counts: ReasonCounts, cards: int) -> str:
    """Answer a node's reasons as HAMi prints and sorts them: `3/8 CardNotHealth, 5/8 CardInsufficientMemory`."""
    return ", ".join(sorted(f"{count}/{cards} {reason.name}" for reason, count in counts.items()))
