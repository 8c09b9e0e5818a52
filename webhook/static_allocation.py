"""Static allocations: a trusted user chooses a pod's cards at its creation, in place of the scheduler.

The ledger and the kubelet trust the annotations that carry an allocation, so other users may not set them.
"""

from collections.abc import Collection, Mapping
from typing import get_args

import msgspec

from allocation import names, quantity
from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.claim import VisibleAs
from allocation.delivery import DELIVERIES
from allocation.errors import InvalidFieldError
from allocation.request import MILLI_PER_PERCENT, read_priority, requests_gpu
from allocation.settings import AllocationSettings
from allocation.wire import environment, record
from webhook.claimed_pod import NamedClaim
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
    derived = [
        environment.annotations(allocation, delivery, visible_as=visible_as)
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
    if allocation.claim is not None:
        raise _invalid(
            f"claim {allocation.claim.name}",
            "the pod names no GpuClaim",
            f"add annotation {names.CLAIM}, or remove the claim from the allocation",
        )
    return {
        name: _gpu_container(container, allocation.containers[name], field, settings)
        for name, (field, container) in _named_containers(pod, allocation, settings).items()
    }


def for_claim(pod: Pod, allocation: Allocation, claimed: NamedClaim, settings: AllocationSettings) -> Allocation:
    """Return `allocation` with the mark of the pod's GpuClaim, so that each card is charged once.

    Raises:
        InvalidFieldError: pod, allocation and claim contradict each other.
    """
    _named_containers(pod, allocation, settings)
    name, devices = claimed.name, claimed.spec.devices
    mark = ClaimMark(name, devices.exclusivity)
    if allocation.claim not in (None, mark):
        stated = f"claim {allocation.claim.name}, {allocation.claim.exclusivity}"
        raise _invalid(stated, f"the pod names GpuClaim {mark.name}, {mark.exclusivity}", "make both equal")
    cards: set[tuple[str, ...]] = set()
    for container, shares in allocation.containers.items():
        path = f"containers.{container}"
        cards.add(tuple(share.uuid for share in shares))
        if len(shares) != devices.count:
            given = f"GpuClaim {name} gives {devices.count} cards"
            raise _invalid(f"{path}: {len(shares)} cards", given, "make both equal")
        if devices.memory_mib is not None and shares[0].memory_mib != devices.memory_mib:
            given = f"GpuClaim {name} gives {devices.memory_mib} MiB of each card"
            raise _invalid(f"{path}: memoryMiB {shares[0].memory_mib}", given, "make both equal")
        percent = 100 if devices.exclusivity == "Exclusive" else devices.cores
        if percent is not None and shares[0].cores != percent * MILLI_PER_PERCENT:
            given = f"GpuClaim {name} gives {percent} % of each card, cores {percent * MILLI_PER_PERCENT}"
            raise _invalid(f"{path}: cores {shares[0].cores}", given, "make both equal")
    if len(cards) > 1:
        raise _invalid("containers", f"the containers of GpuClaim {name} have the same cards", "name them in one order")
    return msgspec.structs.replace(allocation, claim=mark)


def _named_containers(
    pod: Pod, allocation: Allocation, settings: AllocationSettings
) -> dict[str, tuple[str, PodContainer]]:
    """Return the containers that `allocation` names by name, with their paths; no other container may request a GPU."""
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


def annotations(pod_annotations: Mapping[str, str], allocation: Allocation, *, visible_as: VisibleAs) -> dict[str, str]:
    """Return the annotations that are derived from `allocation` and that the pod lacks, or has without its claim."""
    derived = environment.annotations(allocation, visible_as=visible_as)
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
            raise InvalidFieldError(
                field=path,
                value=amount,
                expected=f"{_FIELD} gives the container an amount of memory, so it cannot request a percentage",
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
