"""What the pods of each namespace hold, added up as the scheduler adds it up."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from allocation.errors import AllocationError, InvalidFieldError
from allocation.request import Kind, PodRequest, read_request
from allocation.settings import AllocationSettings
from cli.kube.objects import Pod
from scheduler.fairness.use import Use
from scheduler.state.running_allocation import running_allocation


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
        for charge in charges:
            own.use.add(charge, 1)
        try:
            own.percent += _percent(read_request(pod.spec, settings), is_shared=allocation.claim is not None)
        except InvalidFieldError:
            continue  # the allocation counts even if the request has become invalid
    return dict(sums)


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
