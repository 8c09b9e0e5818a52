"""Kubernetes' `Status` (meta/v1) of a failed request.

Of an internal error the client gets a reference; the details go to the log only.
"""

import logging
import secrets

import msgspec

log = logging.getLogger(__name__)


class Failure(msgspec.Struct):
    """The fields of a Status that is embedded in another object, such as the response of an AdmissionReview."""

    code: int
    reason: str
    message: str
    status: str = "Failure"


class FailureResponse(Failure, rename="camel"):
    """A Status as the body of an HTTP response."""

    kind: str = "Status"
    api_version: str = "v1"


def internal_error(request: str, error: Exception) -> bytes:
    """Log `error`, which made `request` fail; return a Status object in JSON that refers to the log."""
    reference = secrets.token_hex(8)
    log.error("%s failed with an internal error", request, extra={"reference": reference}, exc_info=error)
    return msgspec.json.encode(
        FailureResponse(
            code=500,
            reason="InternalError",
            message=f"internal error; the log of this process has the details under reference {reference}",
        )
    )
