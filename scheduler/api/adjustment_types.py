"""Whether a running pod may have another size, as the API answers it."""

from collections.abc import Mapping

import msgspec

from allocation.wire.resize_record import Size


class AdjustmentQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pod, and the size of its containers.

    Attributes:
        namespace: the pod's namespace.
        pod: its name.
        resize: by container, what it is to have of each of its cards.
    """

    namespace: str
    pod: str
    resize: Mapping[str, Size]


class AmountsLeft(msgspec.Struct, frozen=True, rename={"memory_mib": "memoryMiB"}):
    """What is free of a card beside what the pod has.

    Attributes:
        memory_mib: MiB; negative on a card that is over its capacity.
        cores: thousandths of a card.
    """

    memory_mib: int
    cores: int


class AdjustmentAnswer(msgspec.Struct, frozen=True):
    """Whether a pod may have a size; nothing is changed.

    Attributes:
        fits: whether it may, or has it.
        reason: unless it fits, that of the event: ScalingQuotaExceeded or ResizeRefused.
        message: unless it fits, why it does not.
        remaining: by UUID of the pod's cards, what is left of them: with the new size if it fits, else now.
    """

    fits: bool
    reason: str = ""
    message: str = ""
    remaining: Mapping[str, AmountsLeft] = {}
