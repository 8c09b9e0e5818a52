"""AdmissionReview, v1 and v1beta1: the fields that admission reads, and the answers it gives.

The two versions differ in nothing that is read here. A review is read in two steps, the envelope first, so that a pod
that cannot be read is still answered under its review's uid.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from allocation import names
from allocation.pod import Container, Resources
from webhook import patch

ApiVersion = Literal["admission.k8s.io/v1", "admission.k8s.io/v1beta1"]

EnvironmentEntry = dict[str, Any]
"""An entry of a container's `env`, whole: it is compared with ours as it stands."""


class _NoResources(Resources):
    """Written down it is not what an empty object is, for what is decided about one does not hold for the other."""

    absent: bool = True


NO_RESOURCES = _NoResources()
"""Stands where a container has no `resources` at all: a patch must then add them before it adds to them."""


class SecurityContext(msgspec.Struct):
    """Of a container."""

    privileged: bool | None = None


class PodContainer(Container, rename="camel"):
    """A container with what admission reads beyond its resources."""

    resources: Resources = msgspec.field(default_factory=lambda: NO_RESOURCES)
    env: list[EnvironmentEntry] | None = None
    security_context: SecurityContext | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    """Of a pod."""

    containers: list[PodContainer] = []
    init_containers: list[PodContainer] = []
    ephemeral_containers: list[PodContainer] = []
    scheduler_name: str | None = None
    node_name: str | None = None
    runtime_class_name: str | None = None


class PodLabels(msgspec.Struct):
    """Of a pod: those that decide whether it is ours to prepare."""

    injection: str | None = msgspec.field(default=None, name=names.INJECTION_LABEL)
    hami_webhook: str | None = msgspec.field(default=None, name=names.HAMI_WEBHOOK_LABEL)


NO_LABELS = PodLabels()


class PodMeta(msgspec.Struct, rename="camel"):
    """Of a pod; the name is empty where the API server has yet to generate it."""

    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None
    labels: PodLabels | None = None


class Pod(msgspec.Struct):
    """What admission reads of a pod."""

    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class GroupVersionKind(msgspec.Struct):
    """Of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(msgspec.Struct):
    """Who sent the request."""

    username: str = ""


_NOTHING = msgspec.Raw(b"null")


class Request(msgspec.Struct, rename="camel"):
    """What is to be admitted; `object` and, for an update, `old_object` are read later, by `decode_pod`."""

    uid: str
    kind: GroupVersionKind = msgspec.field(default_factory=GroupVersionKind)
    sub_resource: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    object: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)
    old_object: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)


class Review(msgspec.Struct, rename="camel"):
    """The envelope."""

    api_version: ApiVersion
    request: Request


class UnreadableReviewError(ValueError):
    """It is no AdmissionReview, so there is no uid to answer under."""


class UnreadablePodError(ValueError):
    """The review is readable, its pod is not."""


class _Status(msgspec.Struct):
    code: int
    reason: str
    message: str
    status: str = "Failure"


class _Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str = ""
    patch: msgspec.Raw = patch.NONE
    warnings: Sequence[str] = ()
    status: _Status | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    response: _Response


_REASONS = {400: "BadRequest", 403: "Forbidden"}

_review_decoder = msgspec.json.Decoder(Review)
_pod_decoder = msgspec.json.Decoder(Pod)
_encoder = msgspec.json.Encoder()

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes from anywhere: no JSON or another type, no UTF-8, nested too deeply."""


def decode_review(body: bytes) -> Review:
    """Read the envelope.

    Raises:
        UnreadableReviewError: saying what is wrong, and where.
    """
    try:
        return _review_decoder.decode(body)
    except UNREADABLE as error:
        raise UnreadableReviewError(
            f"this is no AdmissionReview of admission.k8s.io/v1 or v1beta1 with a request: {error}"
        ) from None


def decode_pod(sent: msgspec.Raw) -> Pod:
    """Read a pod: the `object` or `old_object` of a request.

    Raises:
        UnreadablePodError: saying what is wrong, and where.
    """
    try:
        return _pod_decoder.decode(sent)
    except UNREADABLE as error:
        raise UnreadablePodError(f"the pod cannot be read: {error}") from None


def allow(review: Review, *, change: msgspec.Raw = patch.NONE, warnings: tuple[str, ...] = ()) -> bytes:
    """Answer that the object may be created, changed by what `webhook.patch.encode` made."""
    response = _Response(uid=review.request.uid, allowed=True, warnings=warnings, patch=change)
    if change is not patch.NONE:
        response.patch_type = "JSONPatch"
    return _answer(review, response)


def refuse(review: Review, *, message: str, code: int) -> bytes:
    """Answer that the object may not be created, and why; `code` is what the user's client sees (400 or 403)."""
    status = _Status(code=code, reason=_REASONS[code], message=message)
    return _answer(review, _Response(uid=review.request.uid, allowed=False, status=status))


def _answer(review: Review, response: _Response) -> bytes:
    return _encoder.encode(_Answer(api_version=review.api_version, kind="AdmissionReview", response=response))
