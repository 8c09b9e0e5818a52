"""Limits above requests: a container gets what it requests of its cards for certain, and may use more up to a limit.

The annotation is `{"main":{"gpucores":60}}`: by container, the most that it may use of each of its cards, in the units
of its resources. Resources cannot say it, because the API server refuses a pod whose request of an extended resource
differs from its limit. The request is reserved and charged; the limit is what the container's environment has.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from allocation import limits, quota
from allocation.errors import AllocationError, invalid_annotation
from allocation.inventory import WHOLE_CORES
from allocation.names import LIMITS
from allocation.quantity import INT32_MAX
from allocation.quota import Burst
from allocation.request import MILLI_PER_PERCENT, ContainerRequest, PodRequest
from allocation.settings import AllocationSettings

LONGEST: Final = 4 * 1024
"""Characters of the annotation: the limits of 32 containers with the longest names."""
_SHOWN: Final = 200
"""Characters of the annotation that a message repeats."""
_FORM: Final = '{"CONTAINER":{"gpucores":60}}'


class ContainerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The most that a container may use of each of its cards; None is what it requests.

    Attributes:
        gpumem: memory, in units of the resource (MiB, unless the configuration has another factor).
        gpucores: compute in percent of a card.
    """

    gpumem: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    gpucores: Annotated[int, msgspec.Meta(ge=1, le=WHOLE_CORES // MILLI_PER_PERCENT)] | None = None


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_decoder: Final = msgspec.json.Decoder(dict[_Name, ContainerLimits])


def decode(text: str) -> dict[str, ContainerLimits]:
    """Read the annotation's value.

    Raises:
        InvalidFieldError: the value is too long, or not of the form.
    """
    shown = text[:_SHOWN]
    if len(text) > LONGEST:
        raise invalid_annotation(LIMITS, f"{shown}…", expected=f"it must have at most {LONGEST} characters")
    try:
        decoded = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid_annotation(LIMITS, shown, expected=f"it must be of the form {_FORM}: {error}") from None
    if len(decoded) > limits.GPU_CONTAINERS:
        expected = f"it must name at most {limits.GPU_CONTAINERS} containers"
        raise invalid_annotation(LIMITS, shown, expected=expected)
    return decoded


def limited(request: PodRequest, annotations: Mapping[str, str], settings: AllocationSettings) -> PodRequest:
    """Return `request` with the limits of a pod's annotation.

    Raises:
        InvalidFieldError: the annotation cannot be read.
        AllocationError: it names a container without a GPU, or a limit is below the request or not permitted.
    """
    text = annotations.get(LIMITS)
    if text is None:
        return request
    by_name = decode(text)
    unknown = sorted(by_name.keys() - {container.name for container in request.gpu_containers})
    if unknown:
        known = ", ".join(container.name for container in request.gpu_containers) or "none"
        raise AllocationError(
            f"annotation {LIMITS} names container {unknown[0]}, which requests no GPU: those that do are {known}"
        )
    return PodRequest(
        tuple(
            with_limits(each, by_name[each.name], settings) if each.name in by_name else each
            for each in request.containers
        )
    )


def refuse_if_set(annotations: Mapping[str, str], *, because: str) -> None:
    """Refuse a pod with the annotation whose limits something else decides.

    Raises:
        AllocationError: the pod has the annotation.
    """
    if LIMITS in annotations:
        raise AllocationError(f"annotation {LIMITS} has no meaning here, because {because}: remove it")


def with_limits(container: ContainerRequest, its: ContainerLimits, settings: AllocationSettings) -> ContainerRequest:
    """Return a container's request with its limits; one that equals the request changes nothing.

    Raises:
        AllocationError: a limit is below the request, or not permitted.
    """
    where = f"annotation {LIMITS}, container {container.name}:"
    if container.tflops and its.gpucores is not None:
        raise AllocationError(
            f"{where} gpucores is {its.gpucores}, and the container requests TFLOPs: quotas would not count what it may"
            " use beyond them. Leave gpucores out, or request gpucores"
        )
    cores = 0 if its.gpucores is None else its.gpucores * MILLI_PER_PERCENT
    if 0 < cores < container.cores:
        raise AllocationError(
            f"{where} gpucores is {its.gpucores}, and the container requests"
            f" {container.cores / MILLI_PER_PERCENT:g}: a limit must not be below the request"
        )
    memory = 0 if its.gpumem is None else its.gpumem * settings.memory_factor
    if memory:
        _check_memory(container, memory, where, settings)
    return msgspec.structs.replace(
        container,
        memory_limit_mib=memory if memory > (container.memory_mib or 0) else 0,
        cores_limit=cores if cores > container.cores else 0,
    )


def check_memory_bursting(settings: AllocationSettings, where: str) -> None:
    """Refuse a limit of memory above the request where the configuration does not permit any; `where` begins the error.

    Raises:
        AllocationError: it does not.
    """
    if not settings.memory_bursting:
        raise AllocationError(
            f"{where} limits of gpumem above the request are switched off here (allocation.memory_bursting), because"
            " the memory of a card cannot be taken back from a container: request as much as the container needs"
        )


def _check_memory(container: ContainerRequest, limit_mib: int, where: str, settings: AllocationSettings) -> None:
    check_memory_bursting(settings, where)
    if container.memory_mib is None:
        raise AllocationError(
            f"{where} gpumem is for a container that requests {settings.resources.memory}; this one requests"
            f" {container.memory_percent} % of each card's memory: request an amount"
        )
    if limit_mib > INT32_MAX:
        raise AllocationError(f"{where} {limit_mib} MiB are more than any card has")
    if limit_mib < container.memory_mib:
        raise AllocationError(
            f"{where} the limit is {limit_mib} MiB, and the container requests {container.memory_mib}: a limit must not"
            " be below the request"
        )


def of_request(request: PodRequest) -> Burst:
    """Return how much more than it requests a pod may use, as the limits of its namespace count it."""
    if not request.is_bursting:
        return Burst()
    most, own = quota.minimum_request(request.at_limits()), quota.minimum_request(request)
    return Burst(most.memory_mib - own.memory_mib, most.cores - own.cores)
