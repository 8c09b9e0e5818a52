"""A static allocation: a trusted identity says at creation which cards a pod gets, instead of the scheduler.

The ledger and the kubelet believe the annotations that carry an allocation, so nobody else may bring one.
"""

from collections.abc import Collection, Mapping

from allocation import environment, names, quantity, record
from allocation.allocation import Allocation, CardShare
from allocation.errors import InvalidFieldError
from allocation.request import MILLI_PER_PERCENT, asks_for_gpu, read_priority
from allocation.settings import AllocationSettings
from webhook.refusal import RefusedError
from webhook.resources import Needs, given
from webhook.review import Pod, PodContainer

_FIELD = f'metadata.annotations["{names.ALLOCATION}"]'


def read(annotations: Mapping[str, str], *, username: str, trusted: Collection[str]) -> Allocation | None:
    """Answer the static allocation that a new pod brings, None where it brings none.

    Raises:
        RefusedError: the pod brings annotations that this user may not write.
        AllocationError: the allocation cannot be read, or cannot be had.
    """
    brought = [key for key in annotations if names.is_output_key(key)]
    if not brought:
        return None
    if username not in trusted:
        raise RefusedError(
            f"annotation {brought[0]} is written by the scheduler and user {username!r} is not trusted with it: remove"
            " it from the pod"
        )
    allocation = record.of_annotations(annotations)
    if allocation is None:
        raise RefusedError(
            f"annotation {brought[0]} follows from an allocation and there is none: remove it, or bring {_FIELD}"
        )
    _check_shares(allocation)
    following = environment.annotations(allocation)
    for key in brought:
        if key != names.ALLOCATION and annotations[key] != following.get(key):
            raise RefusedError(f"annotation {key} does not follow from {_FIELD}, not even for {username!r}: remove it")
    return allocation


def needs(pod: Pod, allocation: Allocation, settings: AllocationSettings) -> dict[str, Needs]:
    """Answer what each GPU container of `pod` gets.

    Raises:
        InvalidFieldError: pod and allocation do not agree.
    """
    containers = {
        container.name: (f"spec.{kind}[{position}]", container)
        for kind, some in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
        for position, container in enumerate(some)
    }
    for name in allocation.containers:
        if name not in containers:
            raise InvalidFieldError(
                field=_FIELD,
                value=name,
                expected="it must name containers of the pod",
                remedy=f"the pod has {', '.join(containers)}",
            )
    answer: dict[str, Needs] = {}
    for name, (field, container) in containers.items():
        shares = allocation.containers.get(name)
        if shares is not None:
            answer[name] = _needs(container, shares, field, settings)
        elif asks_for_gpu(container, settings):
            raise InvalidFieldError(
                field=f"{field}.resources",
                value=name,
                expected=f"only containers that {_FIELD} names get a GPU",
                remedy="remove its GPU resources, or add its shares there",
            )
    return answer


def annotations(pod_annotations: Mapping[str, str], allocation: Allocation) -> dict[str, str]:
    """Answer the annotations that follow from `allocation` and that the pod lacks."""
    return {key: value for key, value in environment.annotations(allocation).items() if key not in pod_annotations}


def _check_shares(allocation: Allocation) -> None:
    """A container's limits are per card and in percent, so its shares are alike and whole percents."""
    if not allocation.containers:
        raise _invalid("{}", "it must name at least one container", "name one, or remove the annotation")
    for name, shares in allocation.containers.items():
        what = f"containers.{name}"
        if not shares:
            raise _invalid(what, "a container there has at least one card", "add a share, or remove the container")
        first = shares[0]
        if any((share.memory_mib, share.cores) != (first.memory_mib, first.cores) for share in shares):
            raise _invalid(
                what,
                "all shares of a container have the same memoryMiB and cores, because its limits are per card",
                "make them equal",
            )
        if not first.memory_mib:
            raise _invalid(what, "memoryMiB must be 1 or more", "write the MiB that the container may use of each card")
        if first.cores % MILLI_PER_PERCENT:
            raise _invalid(
                what,
                f"cores must be whole percents, multiples of {MILLI_PER_PERCENT}",
                f"write {first.cores - first.cores % MILLI_PER_PERCENT}",
            )


def _invalid(value: str, expected: str, remedy: str) -> InvalidFieldError:
    return InvalidFieldError(field=_FIELD, value=value, expected=expected, remedy=remedy)


def _needs(container: PodContainer, shares: tuple[CardShare, ...], field: str, settings: AllocationSettings) -> Needs:
    resources, factor = settings.resources, settings.memory_factor
    if shares[0].memory_mib % factor:
        raise _invalid(
            f"containers.{container.name}",
            f"memoryMiB must be a multiple of {factor}, the MiB of one {resources.memory}",
            f"write {shares[0].memory_mib - shares[0].memory_mib % factor}",
        )
    wanted = {
        resources.count: len(shares),
        resources.memory: shares[0].memory_mib // factor,
        resources.cores: shares[0].cores // MILLI_PER_PERCENT,
    }
    stated = {name: amount for name, amount in given(container).items() if name in resources.asking()}
    for name, amount in stated.items():
        path = f'{field}.resources.limits["{name}"]'
        if name not in wanted:
            raise InvalidFieldError(
                field=path,
                value=amount,
                expected=f"a container whose memory {_FIELD} gives cannot ask for a share of it",
                remedy="remove it",
            )
        if quantity.whole(amount, field=path, unit="units") != wanted[name]:
            raise InvalidFieldError(
                field=path,
                value=amount,
                expected=f"{_FIELD} gives {wanted[name]}",
                remedy="remove it, or make both agree",
            )
    return Needs(
        cards=len(shares),
        resources={**{name: str(n) for name, n in wanted.items()}, **stated},
        constants=environment.constants(
            priority=read_priority(container, field, settings), core_policy=settings.core_policy
        ),
    )
