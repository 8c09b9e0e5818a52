"""The limits of GpuQuotas and GpuQueues that have no effect, because nothing counts a resource of their name."""

from collections.abc import Iterable, Iterator
from typing import Final

from allocation.fairness.queue_spec import QueueSpec
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from allocation.similar_names import closest

_OF_NODES: Final = ("cpu", "memory", "ephemeral-storage")
_MOST_CHARACTERS: Final = 64


def counted(settings: AllocationSettings) -> tuple[str, str, str, str]:
    """Return the resources of which all pods of a queue or a namespace can be limited together."""
    names = settings.resources
    return names.memory, names.cores, names.tflops, names.count


def of_quota(spec: QuotaSpec, settings: AllocationSettings) -> tuple[str, ...]:
    """Return a sentence for each entry of a GpuQuota that has no effect."""
    names = settings.resources
    single = (names.memory, names.cores, names.tflops)
    return (
        *_of_field("spec.total.limits", spec.total.limits, counted(settings)),
        *_of_field("spec.total.requests", spec.total.requests, counted(settings)),
        *_of_field("spec.single.limits", spec.single.limits, single, count=names.count),
        *_of_field("spec.single.defaults", spec.single.defaults, (*single, names.memory_percentage)),
    )


def of_queue(spec: QueueSpec, settings: AllocationSettings) -> tuple[str, ...]:
    """Return a sentence for each entry of a GpuQueue's limits that has no effect."""
    return (*_of_field("spec.limits", spec.limits, counted(settings)),)


def _of_field(field: str, written: Iterable[str], known: tuple[str, ...], *, count: str = "") -> Iterator[str]:
    for name in sorted(written):
        if name not in known:
            shown = name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}…"
            yield f'{field}["{shown}"] has no effect: {_remedy(name, known, count)}'


def _remedy(name: str, known: tuple[str, ...], count: str) -> str:
    if name in _OF_NODES:
        return f"use a ResourceQuota of each namespace for {name}"
    if count and name == count:
        return "use spec.single.maxCards"
    meant = closest(name, known)
    return f"did you mean {meant}?" if meant else f"the resources that count here are {', '.join(known)}"
