"""The answer to a call of the container runtime, or of the kubelet, that a plugin of theirs refuses."""


class Refusal(Exception):  # noqa: N818 -- an answer, not a failure
    """A container must not have what it is about to get; the kubelet shows the message."""
