"""A defect of ours as a client is told of it: by a reference to the log, and nothing of what stands there."""

import logging
import secrets

import msgspec

log = logging.getLogger(__name__)


class _Status(msgspec.Struct, rename="camel"):
    """Kubernetes' word for what failed."""

    message: str
    reason: str = "InternalError"
    code: int = 500
    kind: str = "Status"
    api_version: str = "v1"
    status: str = "Failure"


def told(what: str, error: Exception) -> bytes:
    """Log `error`, which kept `what` from being answered; answer the JSON of a Status."""
    reference = secrets.token_hex(8)
    log.error("%s was not answered", what, extra={"reference": reference}, exc_info=error)
    return msgspec.json.encode(
        _Status(f"an internal error; the log of this process tells more under reference {reference}")
    )
