"""What the API server answered instead of what was asked for."""

import msgspec


class ClusterError(Exception):
    """Base of everything that goes wrong between us and the API server."""


class UnreachableError(ClusterError):
    """No answer came: whether the request took effect is unknown."""


class ApiError(ClusterError):
    """The API server refused, in the words of its Status object."""

    def __init__(self, *, request: str, status: int, reason: str, message: str) -> None:
        """Keep the HTTP `status`, the Status' `reason` and `message` of a `request` (verb and path)."""
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"{request}: {status} {reason}: {message}")


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: exists already, another UID, or another resourceVersion."""


class GoneError(ApiError):
    """410: the resourceVersion is too old to watch from; list again."""


class TooManyRequestsError(ApiError):
    """429, and the server said so too often in a row."""


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
    """Answer the exception for an HTTP answer that is no success; `body` is its Status, or whatever a proxy sent."""
    try:
        told = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Status(message=body[:_LONGEST_BODY].decode(errors="replace"))
    kind = _BY_STATUS.get(status, ApiError)
    return kind(request=request, status=status, reason=told.reason or "Unknown", message=told.message)


def from_watch(raw: bytes, *, request: str) -> ApiError:
    """Answer the exception for the Status object of a watch's ERROR event."""
    told = msgspec.json.decode(raw, type=_Status)
    return from_answer(request=request, status=told.code or 500, body=raw)
