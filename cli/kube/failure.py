"""The reason why a request to the scheduler failed."""

import msgspec


class _Failure(msgspec.Struct):
    """The error of the scheduler (`error`), or of the API server in front of it (`message`)."""

    error: str = ""
    message: str = ""


def failure_of(payload: bytes) -> str:
    """Return the reason in the body of a response."""
    try:
        failure = msgspec.json.decode(payload, type=_Failure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload[:256].decode(errors="replace")
    return failure.error or failure.message or "no reason given"
