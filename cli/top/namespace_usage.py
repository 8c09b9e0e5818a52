"""The GPU usage of each namespace, and the limits that its GpuQuotas and ResourceQuotas set.

Kubernetes does not count `limits.` of extended resources, so `kubectl describe quota` shows a usage of 0. This module
shows what admission and the scheduler count.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocation import quantity, quota
from allocation.errors import AllocationError, InvalidFieldError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, Kind, PodRequest, read_request
from allocation.settings import AllocationSettings, ResourceNames
from cli.kube.objects import Pod
from cli.tables import NOTHING, Table
from cluster.gpu_quota import GpuQuota
from cluster.resource import RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.fairness.use import Use
from scheduler.state.running_allocation import running_allocation

_LIMITS: Final = "limits."
_TFLOPS_NOTE: Final = "without pods that request {cores}, whose TFLOPs depend on their cards: see 'kubectl gpu quota'"


class ResourceUsage(msgspec.Struct, frozen=True):
    """The usage of one resource, in the units of the resource.

    Attributes:
        resource: the name of the resource.
        used: the amount that pods hold, as the scheduler counts; for a percentage, the sum of the requests.
        limit: the amount that pods may hold, or None without a limit.
        quota: the GpuQuota or ResourceQuota that sets the limit, or empty.
        kind: the kind of the quota, or empty.
        note: why the limit has no effect, or what is not counted here; empty if it is enforced on what is shown.
    """

    resource: str
    used: int
    limit: int | None = None
    quota: str = ""
    kind: str = ""
    note: str = ""

    @property
    def cell(self) -> str:
        """The quota in the table, as kubectl takes it, with the note."""
        if not self.quota:
            return NOTHING
        return f"{self.kind.lower()}/{self.quota}" + (f" ({self.note})" if self.note else "")


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
                each.cell,
            )
            for namespace in self.namespaces
            for each in namespace.resources
        ]
        return Table(("NAMESPACE", "PODS", "RESOURCE", "USED", "LIMIT", "QUOTA"), rows)


class NamespaceSums(msgspec.Struct):
    """The sums over the pods of a namespace.

    Attributes:
        use: what the pods hold that can be counted.
        uncounted: the pods that run and cannot be counted.
        percent: the memory percentages that the others request.
    """

    use: Use = msgspec.field(default_factory=Use)
    uncounted: int = 0
    percent: int = 0


def count(
    pods: Iterable[Pod],
    quotas: Iterable[ResourceQuota],
    settings: AllocationSettings,
    *,
    gpu_quotas: Iterable[GpuQuota] = (),
) -> NamespacesUsage:
    """Return the usage of every namespace that has GPU pods with a node, or limits on GPU resources."""
    namespace_quotas = NamespaceQuotas()
    names = set()
    for each in quotas:
        namespace_quotas.set(each)
        if any(f"{_LIMITS}{resource}" in each.spec.hard for resource in settings.resources.gpu_resources()):
            names.add(each.metadata.namespace)
    specs: defaultdict[str, dict[str, QuotaSpec]] = defaultdict(dict)
    for gpu_quota in gpu_quotas:
        specs[gpu_quota.metadata.namespace][gpu_quota.metadata.name] = gpu_quota.spec
    sums = add_up(pods, settings)
    return NamespacesUsage(
        tuple(
            _usage(
                name,
                sums.get(name, NamespaceSums()),
                namespace_quotas.hards(name),
                quota.of_gpu_quotas(specs.get(name, {}), settings),
                settings=settings,
            )
            for name in sorted({*sums, *names, *specs})
        )
    )


def _usage(
    name: str,
    sums: NamespaceSums,
    hards: Mapping[str, Mapping[str, str]],
    headroom: quota.Headroom,
    *,
    settings: AllocationSettings,
) -> NamespaceUsage:
    """Return the usage of a namespace; `headroom` is that of its GpuQuotas while it is empty."""
    names, most = settings.resources, sums.use.at_limits()
    memory, cores, cards, tflops = quota.limits(hards, settings).within(headroom).limits
    resources = [
        _limited(names.count, sums.use.cards, cards),
        _limited(names.memory, -(-most.memory_mib // settings.memory_factor), memory),
        _percentage(names, sums.percent, hards),
        _limited(names.cores, -(-most.cores // MILLI_PER_PERCENT), cores),
    ]
    if tflops is not None or sums.use.tflops:
        used = _limited(names.tflops, -(-sums.use.tflops // MILLI_PER_TFLOP), tflops)
        resources.append(msgspec.structs.replace(used, note=_TFLOPS_NOTE.format(cores=names.cores)))
    return NamespaceUsage(name, sums.use.pods, sums.uncounted, tuple(resources))


def _limited(resource: str, used: int, limit: quota.Limit | None) -> ResourceUsage:
    if limit is None:
        return ResourceUsage(resource, used)
    return ResourceUsage(resource, used, limit.amount, limit.name, limit.kind)


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
    return ResourceUsage(names.memory_percentage, used, limit, limiting[0], RESOURCE_QUOTAS.kind, note)


def add_up(pods: Iterable[Pod], settings: AllocationSettings) -> Mapping[str, NamespaceSums]:
    """Return the sums of the namespaces with GPU pods."""
    sums: defaultdict[str, NamespaceSums] = defaultdict(NamespaceSums)
    for pod in pods:
        try:
            held = running_allocation(pod, settings)
        except AllocationError:
            sums[pod.metadata.namespace].uncounted += 1
            continue
        if held is None:
            continue
        allocation, charges = held
        own = sums[pod.metadata.namespace]
        own.use.pods += 1
        own.use.add_charges(charges, 1, tflops=sum(charge.tflops for charge in charges))
        try:
            own.percent += _requested_percent(read_request(pod.spec, settings), is_shared=allocation.claim is not None)
        except InvalidFieldError:
            continue  # the allocation counts even if the request has become invalid
    return dict(sums)


def _requested_percent(request: PodRequest, *, is_shared: bool) -> int:
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
