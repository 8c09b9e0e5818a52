"""What keeps the containers on one card to their limits: the isolation of a pod (`gpu.scheduling/isolation`)."""

import enum

from allocation.errors import invalid_annotation


class Isolation(enum.StrEnum):
    """The backend that enforces the limits of a pod's containers; the values are those of the annotation.

    Two backends on one card break each other's limits: a card that pods share is best left to one of them.
    """

    NONE = "none"
    """The limits are in the environment of the containers, and nothing enforces them."""
    HAMI_CORE = "hami-core"
    """HAMi's library, which is loaded into each process."""
    MPS = "mps"
    """CUDA's multi-process service: a daemon on the node, through which the processes use the card."""
    MIG = "mig"
    """Instances of the card, which the hardware separates."""
    CUDA = "cuda"
    """The limits of the driver itself."""


def parse(text: str, *, key: str) -> Isolation:
    """Return the isolation that the annotation `key` names.

    Raises:
        InvalidFieldError: no isolation is called `text`.
    """
    try:
        return Isolation(text)
    except ValueError:
        expected = f"it must be one of {', '.join(Isolation)}"
        raise invalid_annotation(key, text, expected=expected) from None
