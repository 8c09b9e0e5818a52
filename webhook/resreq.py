"""Turns what a pod requires in one line into the requests of its first container, as all other components read them."""

import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from allocation import names, quantity
from allocation.errors import AllocationError, InvalidFieldError
from allocation.fairness.resreq import Requirement
from allocation.pod import Resources
from allocation.quantity import Quantity
from allocation.settings import AllocationSettings
from webhook.membership import Membership
from webhook.patch import Operation, add, pointer
from webhook.review import ForbiddenPodError, Pod, PodContainer, PodSpec

log = logging.getLogger(__name__)

_CPU: Final = "cpu"
_MEMORY: Final = "memory"


def of_pod(pod: Pod, membership: Membership | None, settings: AllocationSettings) -> Requirement | None:
    """Return what a pod requires beyond its containers' resources; None if these say all.

    What its annotation says comes first. A pod that names a queue by a label, and no resources, requires what the queue
    says, or else what the settings say.

    Raises:
        ForbiddenPodError: its containers request resources beside the annotation.
        InvalidFieldError: the annotation is malformed.
    """
    text = (pod.metadata.annotations or {}).get(names.RESREQ)
    if text is not None:
        requirement = _read(text)
        _check_alone(pod, requirement, settings)
        return requirement
    if membership is None or not membership.is_own or any(_stated(each) for each in _containers(pod.spec)):
        return None
    default = membership.resreq or settings.default_resreq
    log.info("a pod of GpuQueue %s requests no resources: it requires %s", membership.queue, default)
    return Requirement.parse(default)


def with_requirement(spec: PodSpec, requirement: Requirement | None, settings: AllocationSettings) -> PodSpec:
    """Return `spec` with what the pod requires as resources of its first container."""
    if requirement is None or not spec.containers:
        return spec
    first, *others = spec.containers
    return msgspec.structs.replace(
        spec, containers=[msgspec.structs.replace(first, resources=_resources(first, requirement, settings)), *others]
    )


def operations(spec: PodSpec, requirement: Requirement | None, settings: AllocationSettings) -> Iterator[Operation]:
    """Iterate over the operations by which the API server makes the same change to `spec`."""
    if requirement is None or not spec.containers:
        return
    first = spec.containers[0]
    resources = _resources(first, requirement, settings)
    if (resources.limits or {}, resources.requests or {}) != (
        first.resources.limits or {},
        first.resources.requests or {},
    ):
        value = {"limits": resources.limits, "requests": resources.requests}
        yield add(pointer("spec", "containers", 0, "resources"), {kind: each for kind, each in value.items() if each})


def _read(text: str) -> Requirement:
    try:
        return Requirement.parse(text)
    except AllocationError as error:
        raise InvalidFieldError(
            field=f'metadata.annotations["{names.RESREQ}"]',
            value=text,
            expected=str(error),
            remedy="write for example cpu=4,mem=16g,gpu=2, or request resources in a container instead",
        ) from None


def _check_alone(pod: Pod, requirement: Requirement, settings: AllocationSettings) -> None:
    """Refuse resources beside the annotation, unless they are what this very requirement has made of them."""
    if names.CLAIM in (pod.metadata.annotations or {}) and requirement.gpu:
        raise ForbiddenPodError(f"annotations {names.RESREQ} and {names.CLAIM} both ask for GPUs: remove one of them")
    first, *others = pod.spec.containers
    for container in (*pod.spec.init_containers, *others):
        if _stated(container):
            raise _beside(container)
    stated = _stated(first)
    wanted = _amounts(requirement, settings)
    if stated and any(name not in stated or not _equal(stated[name], amount) for name, amount in wanted.items()):
        raise _beside(first)


def _beside(container: PodContainer) -> ForbiddenPodError:
    return ForbiddenPodError(
        f"container {container.name} has resources beside annotation {names.RESREQ}: remove the annotation, or the"
        " resources of the container"
    )


def _containers(spec: PodSpec) -> tuple[PodContainer, ...]:
    return (*spec.init_containers, *spec.containers)


def _stated(container: PodContainer) -> dict[str, Quantity]:
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def _equal(stated: Quantity, amount: str) -> bool:
    try:
        return quantity.parse(stated) == quantity.parse(amount)
    except AllocationError:
        return False


def _amounts(requirement: Requirement, settings: AllocationSettings) -> dict[str, str]:
    amounts = {
        _CPU: requirement.cpu,
        _MEMORY: requirement.memory_bytes,
        settings.resources.count: requirement.gpu,
    }
    return {name: str(amount) for name, amount in amounts.items() if amount}


def _resources(container: PodContainer, requirement: Requirement, settings: AllocationSettings) -> Resources:
    """Return the resources of the container with the requirement: GPUs as a limit, everything else as a request."""
    if _stated(container):
        return container.resources
    amounts, count = _amounts(requirement, settings), settings.resources.count
    limits: dict[str, Quantity] = {name: amount for name, amount in amounts.items() if name == count}
    requests: dict[str, Quantity] = {name: amount for name, amount in amounts.items() if name != count}
    return Resources(limits or None, requests or None)
