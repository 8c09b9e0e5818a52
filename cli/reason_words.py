"""What the codes of reasons mean, in words for somebody who sees one for the first time."""

from typing import Final

from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason

WORDS: Final = {
    CardReason.FITS.name: "fits",
    CardReason.CardNotHealth.name: "its agent says that it is not healthy",
    CardReason.CardCordoned.name: "an administrator keeps new pods away (kubectl gpu uncordon)",
    CardReason.CardTypeMismatch.name: "the pod's annotations do not accept its model or mode",
    CardReason.NumaNotFit.name: "too few cards that fit are on one NUMA node",
    CardReason.CardUuidMismatch.name: "the pod's annotations do not accept its UUID",
    CardReason.CardTimeSlicingExhausted.name: "as many containers share it as may",
    CardReason.ExclusiveDeviceAllocateConflict.name: "it is in use, and the pod wants it alone",
    CardReason.ResourceQuotaNotFit.name: "the namespace's ResourceQuota would be exceeded",
    CardReason.CardInsufficientMemory.name: "less memory is free than asked",
    CardReason.CardInsufficientCore.name: "less compute is free than asked",
    CardReason.CardComputeUnitsExhausted.name: "all of its compute is taken",
    CardReason.CardMigTopologyInfeasible.name: "no place for a MIG instance that is large enough",
    CardReason.AllocatedCardsInsufficientRequest.name: "it fits, but too few of its neighbours do",
    CardReason.ModeNotFit.name: "it is in MIG mode and HAMi's device plugin makes its instances",
    NODE_INSUFFICIENT_DEVICE: "fewer cards than one container asks for",
    NODE_UNREGISTERED: "nobody reports cards of it",
}


def meaning(reason: str) -> str:
    """Answer what the codes in a node's reason mean; nothing for one that is in words already."""
    return "; ".join(words for code, words in WORDS.items() if code in reason.replace(",", " ").split())
