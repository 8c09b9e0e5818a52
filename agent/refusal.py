"""The answer to a call of the container runtime, or of the kubelet, that a plugin of theirs refuses."""

from typing import Final

LONGEST: Final = 1024
"""Characters of a message: it goes into the pod's status, and quotes annotations that users may have written."""


class Refusal(Exception):  # noqa: N818 -- an answer, not a failure
    """A container must not have what it is about to get; the kubelet shows the message."""

    def __init__(self, message: str) -> None:
        """Refuse for the reason that `message` gives, of which only the beginning is kept if it is long."""
        super().__init__(message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…")
