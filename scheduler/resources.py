"""CPU, memory and what else a node gives, counted as kube-scheduler counts it. GPU resources are the ledger's."""

from collections.abc import Iterable, Mapping

from allocation import quantity
from allocation.quantity import Quantity
from scheduler.objects import PodContainer, PodSpec

CPU = "cpu"
PODS = "pods"

Amounts = dict[str, int]
"""By resource name: CPU in millicores, everything else in its own unit (bytes, pieces)."""


def requests(spec: PodSpec, *, ours: Iterable[str]) -> Amounts:
    """Answer what a pod takes of its node: max(regular + sidecars, largest init step) + overhead, and one pod.

    Pod-level requests replace the sum of the containers'. The resources named in `ours` are left out.
    """
    steady: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        amounts = _amounts(_requested(container))
        if container.restart_policy == "Always":
            _add(steady, amounts)
            _raise_to(peak, steady)
        else:
            _raise_to(peak, _sum(steady, amounts))
    for container in spec.containers:
        _add(steady, _amounts(_requested(container)))
    _raise_to(peak, steady)
    if spec.resources is not None:
        peak.update(_amounts(spec.resources.requests))
    _add(peak, _amounts(spec.overhead))
    for name in ours:
        peak.pop(name, None)
    peak[PODS] = 1
    return peak


def allocatable(quantities: Mapping[str, str]) -> Amounts:
    """Answer what a node has to give, rounded down."""
    return {
        name: quantity.milli_capacity(text) if name == CPU else quantity.unit_capacity(text)
        for name, text in quantities.items()
    }


def _requested(container: PodContainer) -> Mapping[str, Quantity]:
    return {**(container.resources.limits or {}), **(container.resources.requests or {})}


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
