"""Errors of requests to the API server."""

import msgspec


class ClusterError(Exception):
    """The base of all errors between this process and the API server.

    Attributes:
        is_doubtful: whether the request may have taken effect, or may still do so.
    """

    is_doubtful = True

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: the server is overloaded, or failed for reasons of its own."""
        return self.is_doubtful or isinstance(self, TooManyRequestsError)


class UnreachableError(ClusterError):
    """No response arrived; whether the request took effect is unknown."""


class ApiError(ClusterError):
    """The API server refused the request; the message is that of its Status object."""

    def __init__(self, *, request: str, status: int, reason: str, message: str) -> None:
        """Describe a refused `request` (verb and path) by its HTTP `status` and the Status' `reason` and `message`."""
        self.status = status
        self.reason = reason
        self.message = message
        self.is_doubtful = status >= 500
        super().__init__(f"{request}: {status} {reason}: {message}")


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: the object exists already, or has another UID or resourceVersion."""


class GoneError(ApiError):
    """410: the resourceVersion is too old to watch from; list again."""


class TooManyRequestsError(ApiError):
    """429, after all retries."""


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_BY_STATUS: dict[int, type[ApiError]] = {
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: TooManyRequestsError,
}
_LONGEST_BODY = 256


def from_answer(*, request: str, status: int, body: bytes) -> ApiError:
    """Return the exception for an HTTP error; `body` is a Status object, or whatever a proxy sent."""
    try:
        decoded = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        decoded = _Status(message=body[:_LONGEST_BODY].decode(errors="replace"))
    kind = _BY_STATUS.get(status, ApiError)
    return kind(request=request, status=status, reason=decoded.reason or "Unknown", message=decoded.message)


def from_watch(raw: bytes, *, request: str) -> ApiError:
    """Return the exception for the Status object of a watch's ERROR event."""
    status = msgspec.json.decode(raw, type=_Status).code or 500
    return from_answer(request=request, status=status, body=raw)
