"""The GPU usage of each namespace, and the limits that its ResourceQuotas set.

Kubernetes does not count `limits.` of extended resources, so `kubectl describe quota` shows a usage of 0. This module
shows what admission and the scheduler count.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation import quantity, quota
from allocation.errors import AllocationError, InvalidFieldError
from allocation.request import MILLI_PER_PERCENT, Kind, PodRequest, read_request
from allocation.settings import AllocationSettings, ResourceNames
from cli.kube.objects import Pod
from cli.tables import NOTHING, Table
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.state.running_allocation import running_allocation

_LIMITS: Final = "limits."


class ResourceUsage(msgspec.Struct, frozen=True):
    """The usage of one resource, in the units of the resource.

    Attributes:
        resource: the name of the resource.
        used: the amount that pods hold, as the scheduler counts; for a percentage, the sum of the requests.
        limit: the amount that pods may hold, or None without a limit.
        quota: the ResourceQuota that sets the limit, or empty.
        note: why the limit has no effect, or empty if it is enforced.
    """

    resource: str
    used: int
    limit: int | None = None
    quota: str = ""
    note: str = ""


class NamespaceUsage(msgspec.Struct, frozen=True):
    """One namespace: the number of its GPU pods, and of those that run but cannot be counted."""

    name: str
    pods: int
    uncounted: int
    resources: tuple[ResourceUsage, ...]


class NamespacesUsage(msgspec.Struct, frozen=True):
    """The output of `kubectl gpu top --namespaces -o json`: namespaces with GPU pods or limits, sorted by name."""

    namespaces: tuple[NamespaceUsage, ...]

    def table(self) -> Table:
        """Return a table with one row per resource of each namespace."""
        rows = [
            (
                namespace.name,
                str(namespace.pods),
                each.resource,
                str(each.used),
                NOTHING if each.limit is None else str(each.limit),
                (each.quota or NOTHING) + (f" ({each.note})" if each.note else ""),
            )
            for namespace in self.namespaces
            for each in namespace.resources
        ]
        return Table(("NAMESPACE", "PODS", "RESOURCE", "USED", "LIMIT", "QUOTA"), rows)


class _Sums(msgspec.Struct):
    """Sums over the pods of a namespace: MiB, millicards and shares held, and percentages requested."""

    pods: int = 0
    uncounted: int = 0
    memory_mib: int = 0
    cores: int = 0
    cards: int = 0
    percent: int = 0


def count(pods: Iterable[Pod], quotas: Iterable[ResourceQuota], settings: AllocationSettings) -> NamespacesUsage:
    """Return the usage of every namespace that has GPU pods with a node, or limits on GPU resources."""
    namespace_quotas = NamespaceQuotas()
    names = set()
    for each in quotas:
        namespace_quotas.set(each)
        if any(f"{_LIMITS}{resource}" in each.spec.hard for resource in settings.resources.gpu_resources()):
            names.add(each.metadata.namespace)
    sums: dict[str, _Sums] = {}
    for pod in pods:
        _add(sums, pod, settings)
    return NamespacesUsage(
        tuple(
            _usage(name, sums.get(name, _Sums()), namespace_quotas.hards(name), settings)
            for name in sorted({*sums, *names})
        )
    )


def _add(sums: dict[str, _Sums], pod: Pod, settings: AllocationSettings) -> None:
    try:
        held = running_allocation(pod, settings)
    except AllocationError:
        sums.setdefault(pod.metadata.namespace, _Sums()).uncounted += 1
        return
    if held is None:
        return
    allocation, charges = held
    own = sums.setdefault(pod.metadata.namespace, _Sums())
    own.pods += 1
    for charge in charges:
        own.memory_mib += charge.memory_mib
        own.cores += charge.cores
        own.cards += charge.slots
    try:
        own.percent += _percent(read_request(pod.spec, settings), is_shared=allocation.claim is not None)
    except InvalidFieldError:
        return  # the allocation counts even if the request has become invalid


def _percent(request: PodRequest, *, is_shared: bool) -> int:
    """Return the memory percentages that a pod requests, summed over its cards; init containers run one by one.

    If `is_shared`, its containers request the same cards, those of its GpuClaim.
    """
    steady = peak = 0
    for container in request.gpu_containers:
        own = container.memory_percent * container.count if container.memory_mib is None else 0
        if is_shared:
            peak = max(peak, own)
        elif container.kind is Kind.INIT:
            peak = max(peak, steady + own)
        else:
            steady += own
    return max(peak, steady)


def _usage(
    name: str, sums: _Sums, hards: Mapping[str, Mapping[str, str]], settings: AllocationSettings
) -> NamespaceUsage:
    names = settings.resources
    memory, cores, cards = quota.limits(hards, settings).limits
    resources = (
        _limited(names.count, sums.cards, cards),
        _limited(names.memory, -(-sums.memory_mib // settings.memory_factor), memory),
        _percentage(names, sums.percent, hards),
        _limited(names.cores, -(-sums.cores // MILLI_PER_PERCENT), cores),
    )
    return NamespaceUsage(name, sums.pods, sums.uncounted, resources)


def _limited(resource: str, used: int, limit: quota.Limit | None) -> ResourceUsage:
    if limit is None:
        return ResourceUsage(resource, used)
    return ResourceUsage(resource, used, limit.amount, limit.quota)


def _percentage(names: ResourceNames, used: int, hards: Mapping[str, Mapping[str, str]]) -> ResourceUsage:
    """Return the usage of the percentage resource; a limit on it has no effect, because it is charged as memory."""
    key = f"{_LIMITS}{names.memory_percentage}"
    limiting = next(((quota_name, hard[key]) for quota_name, hard in sorted(hards.items()) if key in hard), None)
    if limiting is None:
        return ResourceUsage(names.memory_percentage, used)
    try:
        limit = quantity.unit_capacity(limiting[1])
    except AllocationError:
        limit = 0
    note = f"not enforced: a percentage is charged as {names.memory}, limit that instead"
    return ResourceUsage(names.memory_percentage, used, limit, limiting[0], note)
