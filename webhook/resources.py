"""Completes a container's GPU resources: defaults and derived amounts are written into the pod.

The API server accepts an extended resource only with a limit, and a request, if there is one, must equal the limit.
"""

from collections.abc import Iterator, Mapping

import msgspec

from allocation.quantity import Quantity
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, ContainerRequest
from allocation.settings import AllocationSettings
from allocation.wire import environment
from webhook.patch import Operation, add, pointer
from webhook.review import NO_RESOURCES, PodContainer


class GpuContainer(msgspec.Struct, frozen=True):
    """A GPU container as admission prepares it.

    Attributes:
        cards: the number of its cards.
        resources: its complete GPU resources by name.
        constants: its environment variables whose values are known at admission.
        fabric: its environment variables of the node's fabric, each unless its own `env` sets it.
    """

    cards: int
    resources: Mapping[str, Quantity]
    constants: Mapping[str, str] = {}
    fabric: tuple[str, ...] = ()


def stated_resources(container: PodContainer) -> dict[str, Quantity]:
    """Return the resources that a container names; limits take precedence over requests."""
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def from_request(container: PodContainer, request: ContainerRequest, settings: AllocationSettings) -> GpuContainer:
    """Return a container with its own quantities unchanged and the derived amounts added."""
    stated, names = stated_resources(container), settings.resources
    derived = {
        names.count: request.count,
        names.memory: (request.memory_mib or 0) // settings.memory_factor,
        names.cores: request.cores // MILLI_PER_PERCENT,
        names.tflops: request.tflops // MILLI_PER_TFLOP,
    }
    resources: dict[str, Quantity] = {name: str(number) for name, number in derived.items() if number}
    resources.update({name: stated[name] for name in names.gpu_resources() if name in stated})
    constants = environment.constants(priority=request.priority, core_policy=settings.core_policy)
    return GpuContainer(cards=request.count, resources=resources, constants=constants)


def operations(container: PodContainer, *, at: str, prepared: GpuContainer) -> Iterator[Operation]:
    """Yield the operations that complete the limits, and the requests where the container has any."""
    if container.resources is NO_RESOURCES:
        yield add(at + pointer("resources"), {"limits": dict(prepared.resources)})
        return
    limits, requests = container.resources.limits, container.resources.requests
    if not limits:
        yield add(at + pointer("resources", "limits"), dict(prepared.resources))
    for kind, present in (("limits", limits), ("requests", requests)):
        if present:
            for name, amount in prepared.resources.items():
                if name not in present:
                    yield add(at + pointer("resources", kind, name), amount)
