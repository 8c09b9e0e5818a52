"""CPU, memory and other resources of a node, counted as kube-scheduler counts them. The ledger counts GPU resources."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from allocation import quantity
from allocation.quantity import Quantity
from scheduler.objects import ContainerStatus, Pod, PodStatus
from scheduler.pod_spec.containers import PodContainer

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

Amounts = dict[str, int]
"""Amounts by resource name: CPU in millicores, all others in their own unit (bytes, pieces)."""


def requests(pod: Pod, *, ours: Iterable[str], defaults: Mapping[str, int] = MappingProxyType({})) -> Amounts:
    """Return what a pod uses of its node: max(regular + sidecars, largest init step) + overhead, and one pod.

    Pod-level requests replace the sum of the containers' requests. While a pod is being resized, the larger of the
    requests in its spec and the resources that its node has allocated counts. The result leaves out the resources named
    in `ours`. A container that does not request a resource of `defaults` counts with the amount there.
    """
    spec, status = pod.spec, pod.status
    allocated = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}
    steady: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        amounts = {**defaults, **_of_container(container, allocated)}
        if container.restart_policy == "Always":
            _add(steady, amounts)
            _raise_to(peak, steady)
        else:
            _raise_to(peak, _sum(steady, amounts))
    for container in spec.containers:
        _add(steady, {**defaults, **_of_container(container, allocated)})
    _raise_to(peak, steady)
    if spec.resources is not None and spec.resources.requests:
        whole = _amounts(spec.resources.requests)
        _raise_to(whole, _allocated(status))
        peak.update(whole)
    _add(peak, _amounts(spec.overhead))
    for name in ours:
        peak.pop(name, None)
    peak[PODS] = 1
    return peak


def allocatable(quantities: Mapping[str, str]) -> Amounts:
    """Return the allocatable amounts of a node, rounded down."""
    return {
        name: quantity.milli_capacity(text) if name == CPU else quantity.unit_capacity(text)
        for name, text in quantities.items()
    }


def _of_container(container: PodContainer, allocated: Mapping[str, ContainerStatus]) -> Amounts:
    amounts = _amounts({**(container.resources.limits or {}), **(container.resources.requests or {})})
    status = allocated.get(container.name)
    if status is not None:
        _raise_to(amounts, _allocated(status))
    return amounts


def _allocated(status: ContainerStatus | PodStatus) -> Amounts:
    amounts = _amounts(status.allocated_resources)
    if status.resources is not None:
        _raise_to(amounts, _amounts(status.resources.requests or {}))
    return amounts


def _amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: quantity.milli(text) if name == CPU else quantity.units(text) for name, text in quantities.items()}


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    total = dict(left)
    _add(total, right)
    return total


def _add(amounts: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def _raise_to(amounts: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        amounts[name] = max(amounts.get(name, 0), amount)
