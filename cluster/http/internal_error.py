"""Internal errors: the client gets a reference; the details go to the log only."""

import logging
import secrets

import msgspec

from cluster.http.status import FailureResponse

log = logging.getLogger(__name__)


def to_status(request: str, error: Exception) -> bytes:
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
