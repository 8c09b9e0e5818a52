"""Static allocations: a trusted user chooses a pod's cards at its creation, in place of the scheduler.

The ledger and the kubelet trust the annotations that carry an allocation, so other users may not set them.
"""

from collections.abc import Collection, Mapping
from typing import get_args

from allocation import names, quantity
from allocation.allocation import Allocation, CardShare
from allocation.claim import VisibleAs
from allocation.constraints import read_isolation
from allocation.delivery import DELIVERIES
from allocation.errors import InvalidFieldError
from allocation.isolation import Isolation
from allocation.request import MILLI_PER_PERCENT, read_priority, requests_gpu
from allocation.settings import AllocationSettings
from allocation.wire import environment, record
from webhook.resources import GpuContainer, stated_resources
from webhook.review import ForbiddenPodError, Pod, PodContainer

_FIELD = f'metadata.annotations["{names.ALLOCATION}"]'


def read(annotations: Mapping[str, str], *, username: str, trusted: Collection[str]) -> Allocation | None:
    """Return the static allocation in the annotations of a new pod, or None where it has none.

    Raises:
        ForbiddenPodError: the pod has annotations that this user may not set.
        AllocationError: the allocation is malformed or impossible.
    """
    output_keys = [key for key in annotations if names.is_output_key(key)]
    if not output_keys:
        return None
    if username not in trusted:
        raise ForbiddenPodError(
            f"annotation {output_keys[0]} is written by the scheduler, and user {username!r} is not trusted to set it:"
            " remove it from the pod"
        )
    allocation = record.of_annotations(annotations)
    if allocation is None:
        raise ForbiddenPodError(
            f"annotation {output_keys[0]} is derived from an allocation, which the pod does not have: remove it, or add"
            f" {_FIELD}"
        )
    _check_shares(allocation)
    chosen = read_isolation(annotations)
    derived = [
        environment.annotations(allocation, delivery, visible_as=visible_as, isolation=chosen)
        for delivery in DELIVERIES
        for visible_as in get_args(VisibleAs)
    ]
    for key in output_keys:
        if key != names.ALLOCATION and annotations[key] not in [each.get(key) for each in derived]:
            raise ForbiddenPodError(f"annotation {key} contradicts {_FIELD}: remove it, it is derived from that")
    return allocation


def gpu_containers(pod: Pod, allocation: Allocation, settings: AllocationSettings) -> dict[str, GpuContainer]:
    """Return the GPU containers of `pod` by name, with the resources that `allocation` gives them.

    Raises:
        InvalidFieldError: pod and allocation contradict each other.
    """
    return {
        name: _gpu_container(container, allocation.containers[name], field, settings)
        for name, (field, container) in named_containers(pod, allocation, settings).items()
    }


def named_containers(
    pod: Pod, allocation: Allocation, settings: AllocationSettings
) -> dict[str, tuple[str, PodContainer]]:
    """Return the containers that `allocation` names by name, with their paths.

    Raises:
        InvalidFieldError: the pod lacks one of them, or another container requests a GPU.
    """
    containers = {
        container.name: (f"spec.{kind}[{position}]", container)
        for kind, listed in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        for position, container in enumerate(listed)
    }
    for name in allocation.containers:
        if name not in containers:
            raise InvalidFieldError(
                field=_FIELD,
                value=name,
                expected="it must name containers of the pod",
                remedy=f"the pod has {', '.join(containers)}",
            )
    for name, (field, container) in containers.items():
        if name not in allocation.containers and requests_gpu(container, settings):
            raise InvalidFieldError(
                field=f"{field}.resources",
                value=name,
                expected=f"only containers that {_FIELD} names may have GPUs",
                remedy="remove its GPU resources, or add the container to the allocation",
            )
    return {name: each for name, each in containers.items() if name in allocation.containers}


def annotations(
    pod_annotations: Mapping[str, str], allocation: Allocation, *, visible_as: VisibleAs, isolation: Isolation
) -> dict[str, str]:
    """Return the annotations that are derived from `allocation` and that the pod lacks, or has without its claim."""
    derived = environment.annotations(allocation, visible_as=visible_as, isolation=isolation)
    lacking = {key: value for key, value in derived.items() if key not in pod_annotations}
    if record.of_annotations(pod_annotations) != allocation:
        lacking[names.ALLOCATION] = derived[names.ALLOCATION]
    return lacking


def _check_shares(allocation: Allocation) -> None:
    """Check that a container's shares are equal, because limits are per card, and in whole percents."""
    if not allocation.containers:
        raise _invalid("{}", "it must name at least one container", "name one, or remove the annotation")
    for name, shares in allocation.containers.items():
        path = f"containers.{name}"
        if not shares:
            raise _invalid(path, "a container must have at least one card", "add a share, or remove the container")
        first = shares[0]
        if any((share.memory_mib, share.cores) != (first.memory_mib, first.cores) for share in shares):
            raise _invalid(
                path,
                "all shares of a container must have the same memoryMiB and cores, because its limits are per card",
                "make them equal",
            )
        if any(share.tflops for share in shares):
            raise _invalid(path, "cores say how much of a card a container gets", "leave tflops out")
        if not first.memory_mib:
            raise _invalid(path, "memoryMiB must be 1 or more", "write the MiB that the container may use on each card")
        if first.cores % MILLI_PER_PERCENT:
            raise _invalid(
                path,
                f"cores must be whole percents, multiples of {MILLI_PER_PERCENT}",
                f"write {first.cores - first.cores % MILLI_PER_PERCENT}",
            )


def _invalid(value: str, expected: str, remedy: str) -> InvalidFieldError:
    return InvalidFieldError(field=_FIELD, value=value, expected=expected, remedy=remedy)


def _gpu_container(
    container: PodContainer, shares: tuple[CardShare, ...], field: str, settings: AllocationSettings
) -> GpuContainer:
    resources, factor = settings.resources, settings.memory_factor
    if shares[0].memory_mib % factor:
        raise _invalid(
            f"containers.{container.name}",
            f"memoryMiB must be a multiple of {factor}, the MiB of one {resources.memory}",
            f"write {shares[0].memory_mib - shares[0].memory_mib % factor}",
        )
    allocated = {
        resources.count: len(shares),
        resources.memory: shares[0].memory_mib // factor,
        resources.cores: shares[0].cores // MILLI_PER_PERCENT,
    }
    stated = {name: amount for name, amount in stated_resources(container).items() if name in resources.gpu_resources()}
    for name, amount in stated.items():
        path = f'{field}.resources.limits["{name}"]'
        if name not in allocated:
            amounts = "cores, so it cannot request TFLOPs"
            if name == resources.memory_percentage:
                amounts = "an amount of memory, so it cannot request a percentage"
            raise InvalidFieldError(
                field=path,
                value=amount,
                expected=f"{_FIELD} gives the container {amounts}",
                remedy="remove it",
            )
        if quantity.whole(amount, field=path, unit="units") != allocated[name]:
            raise InvalidFieldError(
                field=path,
                value=amount,
                expected=f"{_FIELD} gives {allocated[name]}",
                remedy="remove it, or make both equal",
            )
    return GpuContainer(
        cards=len(shares),
        resources={**{name: str(number) for name, number in allocated.items()}, **stated},
        constants=environment.constants(
            priority=read_priority(container, field, settings), core_policy=settings.core_policy
        ),
    )
