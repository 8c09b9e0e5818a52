"""`spec.single` of GpuQuotas: what one pod may request, and what it requests where it says nothing (docs/quotas.md)."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from allocation.fairness.quota_spec import QuotaSpec, SingleQuota
from allocation.quota import minimum_request
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, ContainerRequest, PodRequest
from allocation.settings import AllocationSettings


class Default(msgspec.Struct, frozen=True):
    """What a GPU container requests of each card if it does not say so itself.

    Attributes:
        resource: the name that users write, such as `nvidia.com/gpumem`.
        amount: in units of the resource.
        quota: the name of the GpuQuota that says it.
    """

    resource: str
    amount: int
    quota: str


def exceeded(
    request: PodRequest, quotas: Mapping[str, QuotaSpec], settings: AllocationSettings, *, is_instance: bool = False
) -> str:
    """Return a message about the first limit of a single pod that `request` exceeds, or an empty string.

    `quotas` are the GpuQuotas of the pod's namespace, by their names. What each container requests of each card is
    compared; a percentage of memory is not, because its amount depends on the card. With `is_instance` the pod gets
    MIG instances, which limit memory and cores themselves, so that it need not request any.
    """
    for name, spec in sorted(quotas.items()):
        for message in _excesses(request, spec.single, settings, is_instance=is_instance):
            return f"GpuQuota {name}: {message}"
    return ""


def in_mib(request: PodRequest, card_mib: Callable[[], int]) -> PodRequest:
    """Return `request` with an amount in place of each percentage of the memory of a card, which `card_mib` returns."""
    containers = tuple(
        msgspec.structs.replace(each, memory_mib=each.memory_on(card_mib()))
        if each.memory_percent and each.memory_mib is None
        else each
        for each in request.containers
    )
    return msgspec.structs.replace(request, containers=containers)


def defaults(quotas: Mapping[str, QuotaSpec], settings: AllocationSettings) -> tuple[Default, ...]:
    """Return what a GPU container requests of memory and compute if it does not say so: the smallest default of each.

    `quotas` are the GpuQuotas of the pod's namespace, by their names; the first of equal defaults counts. A percentage
    of memory counts only if no quota says an amount, and TFLOPs only if none says cores. A default of 0 for memory or
    TFLOPs does not count, as in a request.
    """
    names = settings.resources
    found = (
        _smallest(quotas, names.memory, minimum=1) or _smallest(quotas, names.memory_percentage, minimum=1),
        _smallest(quotas, names.cores, minimum=0) or _smallest(quotas, names.tflops, minimum=1),
    )
    return tuple(default for default in found if default is not None)


def _excesses(
    request: PodRequest, single: SingleQuota, settings: AllocationSettings, *, is_instance: bool
) -> Iterator[str]:
    for container in request.at_limits().gpu_containers if single.limits else ():
        for resource, requested, is_stated in _per_card(container, settings):
            limit = single.limits.get(resource)
            said = f'spec.single.limits["{resource}"] is {limit}, and container {container.name} requests'
            if limit is not None and requested > limit:
                yield f"{said} {requested} of each card"
            elif limit is not None and not is_stated and not is_instance:
                yield f"{said} none, so nothing would limit it"
    if single.max_cards is not None:
        cards = minimum_request(request).cards
        if cards > single.max_cards:
            yield f"spec.single.maxCards is {single.max_cards}, and the pod requests {cards}"


def _per_card(container: ContainerRequest, settings: AllocationSettings) -> Iterator[tuple[str, int, bool]]:
    """Iterate over what a container requests of each card, by resource, and whether it requests any.

    A part of a unit counts as a whole one, and a percentage of memory as none that is known. So does compute in the
    other measure than the limit's: how much it is depends on the card.
    """
    names, memory = settings.resources, container.memory_mib or 0
    yield names.memory, -(-memory // settings.memory_factor), bool(memory or container.memory_percent)
    states_compute = bool(container.cores or container.tflops)
    yield names.cores, -(-container.cores // MILLI_PER_PERCENT), states_compute
    yield names.tflops, -(-container.tflops // MILLI_PER_TFLOP), states_compute


def _smallest(quotas: Mapping[str, QuotaSpec], resource: str, *, minimum: int) -> Default | None:
    found = [
        Default(resource, spec.single.defaults[resource], name)
        for name, spec in sorted(quotas.items())
        if spec.single.defaults.get(resource, -1) >= minimum
    ]
    return min(found, key=lambda default: default.amount, default=None)
