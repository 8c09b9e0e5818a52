"""AdmissionReview, v1 and v1beta1: the fields that admission reads, and its responses.

The fields that are read here are the same in both versions. A review is decoded in two steps, the envelope first, so
that the response to an unreadable pod still carries the uid of its review.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from allocation.pod import Container, Resources
from cluster.http.status import Failure
from webhook import patch

ApiVersion = Literal["admission.k8s.io/v1", "admission.k8s.io/v1beta1"]

EnvironmentEntry = dict[str, Any]
"""A complete entry of a container's `env`, as it was sent: it is compared with ours."""


class _NoResources(Resources):
    """Serialises differently from `{}`: the mutation cache must not confuse missing with empty resources."""

    absent: bool = True


NO_RESOURCES = _NoResources()
"""The value of a missing `resources`: a patch must then create the object before it adds members to it."""


class Capabilities(msgspec.Struct):
    """The Linux capabilities that a container adds to the runtime's default set."""

    add: list[str] | None = None


class SecurityContext(msgspec.Struct):
    """The securityContext of a container."""

    privileged: bool | None = None
    capabilities: Capabilities | None = None


class PodContainer(Container, rename="camel"):
    """A container: the fields that admission reads."""

    resources: Resources = msgspec.field(default_factory=lambda: NO_RESOURCES)
    env: list[EnvironmentEntry] | None = None
    security_context: SecurityContext | None = None


class SchedulingGroup(msgspec.Struct, rename="camel"):
    """The PodGroup of Kubernetes that a pod names; empty for anything else."""

    pod_group_name: str = ""


class ClaimedDevices(msgspec.Struct):
    """A pod's claim of devices of a DRA driver, of which admission reads nothing but that it exists."""


class PodSpec(msgspec.Struct, rename="camel"):
    """A pod's spec: the fields that admission reads."""

    containers: list[PodContainer] = []
    init_containers: list[PodContainer] = []
    ephemeral_containers: list[PodContainer] = []
    scheduler_name: str | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    runtime_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_group: SchedulingGroup | None = None
    resource_claims: list[ClaimedDevices] = []


class PodMeta(msgspec.Struct, rename="camel"):
    """A pod's metadata; the name is empty until the API server has generated it."""

    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Pod(msgspec.Struct):
    """A pod: the fields that admission reads."""

    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class GroupVersionKind(msgspec.Struct):
    """The type of the object under review."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(msgspec.Struct):
    """The user who sent the request."""

    username: str = ""


_NOTHING = msgspec.Raw(b"null")


class Request(msgspec.Struct, rename="camel"):
    """The request under review; `decode_pod` decodes `object` and, for an update, `old_object` later.

    The name is empty until the API server has generated it.
    """

    uid: str
    kind: GroupVersionKind = msgspec.field(default_factory=GroupVersionKind)
    name: str = ""
    sub_resource: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    object: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)
    old_object: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)


class Review(msgspec.Struct, rename="camel"):
    """An AdmissionReview whose object is not decoded yet."""

    api_version: ApiVersion
    request: Request


class UnreadableReviewError(ValueError):
    """The body is not an AdmissionReview, so it has no uid that a response could carry."""


class UnreadablePodError(ValueError):
    """The review can be decoded, but its pod cannot."""


class ForbiddenPodError(Exception):
    """The pod asks for something that no user, or not this one, may have; the message ends with the remedy.

    Fields with invalid values raise `allocation.errors.InvalidFieldError` instead.
    """


class ForbiddenNowError(ForbiddenPodError):
    """The pod may be created once something else has changed: its namespace, GpuClaim or GpuQueue, or a quota."""


class UnavailableClaimError(Exception):
    """The GpuClaim of the pod could not be read just now: the pod may be admitted later."""


class _Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str = ""
    patch: msgspec.Raw = patch.NONE
    warnings: Sequence[str] = ()
    status: Failure | None = None


class _ReviewResponse(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    response: _Response


_REASONS = {400: "BadRequest", 403: "Forbidden", 503: "ServiceUnavailable"}

_review_decoder = msgspec.json.Decoder(Review)
_pod_decoder = msgspec.json.Decoder(Pod)
_encoder = msgspec.json.Encoder()

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for arbitrary bytes: invalid JSON, a wrong type, invalid UTF-8, nested too deeply."""


def decode_review(body: bytes) -> Review:
    """Decode a review, except for its object.

    Raises:
        UnreadableReviewError: the message says what is wrong, and where.
    """
    try:
        return _review_decoder.decode(body)
    except UNREADABLE as error:
        raise UnreadableReviewError(
            f"not an AdmissionReview (admission.k8s.io/v1 or v1beta1) with a request: {error}"
        ) from None


def decode_pod(sent: msgspec.Raw) -> Pod:
    """Decode a pod: the `object` or `old_object` of a request.

    Raises:
        UnreadablePodError: the message says what is wrong, and where.
    """
    try:
        return _pod_decoder.decode(sent)
    except UNREADABLE as error:
        raise UnreadablePodError(f"the pod cannot be read: {error}") from None


def allow(review: Review, *, patch_json: msgspec.Raw = patch.NONE, warnings: tuple[str, ...] = ()) -> bytes:
    """Return the response that admits the object with the patch that `webhook.patch.encode` returned."""
    response = _Response(uid=review.request.uid, allowed=True, warnings=warnings, patch=patch_json)
    if patch_json is not patch.NONE:
        response.patch_type = "JSONPatch"
    return _encode(review, response)


def refuse(review: Review, *, message: str, code: int) -> bytes:
    """Return the response that refuses the object; the user's client receives `code` and `message`.

    `code` is 400, 403, or 503 for an object that may be admitted later.
    """
    status = Failure(code=code, reason=_REASONS[code], message=message)
    return _encode(review, _Response(uid=review.request.uid, allowed=False, status=status))


def _encode(review: Review, response: _Response) -> bytes:
    return _encoder.encode(_ReviewResponse(api_version=review.api_version, kind="AdmissionReview", response=response))
