"""A container's GPU resources as admission leaves them: what was derived stands in the pod, for everybody to read.

The API server accepts an extended resource only with a limit, and with a request, if any, that equals it.
"""

from collections.abc import Iterator, Mapping

import msgspec

from allocation import environment
from allocation.quantity import Quantity
from allocation.request import MILLI_PER_PERCENT, ContainerRequest
from allocation.settings import AllocationSettings
from webhook.patch import Operation, add, pointer
from webhook.review import NO_RESOURCES, PodContainer


class Needs(msgspec.Struct, frozen=True):
    """What a GPU container gets.

    Attributes:
        cards: how many.
        resources: its GPU resources by name, as they shall stand in the pod.
        constants: its variables whose values are known already.
    """

    cards: int
    resources: Mapping[str, Quantity]
    constants: Mapping[str, str] = {}


def given(container: PodContainer) -> dict[str, Quantity]:
    """Answer the resources that a container names, limits before requests."""
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def requested(container: PodContainer, request: ContainerRequest, settings: AllocationSettings) -> Needs:
    """Answer what a container asks for, its own words kept, what was derived from them added."""
    stated, names = given(container), settings.resources
    derived = {
        names.count: request.count,
        names.memory: (request.memory_mib or 0) // settings.memory_factor,
        names.cores: request.cores // MILLI_PER_PERCENT,
    }
    resources: dict[str, Quantity] = {name: str(number) for name, number in derived.items() if number}
    resources.update({name: stated[name] for name in names.asking() if name in stated})
    constants = environment.constants(priority=request.priority, core_policy=settings.core_policy)
    return Needs(cards=request.count, resources=resources, constants=constants)


def operations(container: PodContainer, *, at: str, needs: Needs) -> Iterator[Operation]:
    """Answer what makes the limits, and the requests where there are any, name all that the container gets."""
    if container.resources is NO_RESOURCES:
        yield add(at + pointer("resources"), {"limits": dict(needs.resources)})
        return
    limits, requests = container.resources.limits, container.resources.requests
    if not limits:
        yield add(at + pointer("resources", "limits"), dict(needs.resources))
    for kind, present in (("limits", limits), ("requests", requests)):
        if present:
            for name, amount in needs.resources.items():
                if name not in present:
                    yield add(at + pointer("resources", kind, name), amount)
