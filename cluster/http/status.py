"""Kubernetes' `Status` (meta/v1) of a failed request."""

import msgspec


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
