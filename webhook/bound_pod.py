"""Prepares a pod whose application has its cards by GPUBindings: what they say takes the place of what the pod says.

Only the scheduler decides which cards the pod gets. Admission makes the pod say the same as far as that is known before
the node is: no list of cards of its own, and the memory that all bindings of the application agree on.
"""

from collections.abc import Iterator, Mapping

import msgspec

from allocation import names, quantity
from allocation.bindings.granted import Granted
from allocation.errors import AllocationError
from allocation.pod import Resources
from allocation.precedence import Decision
from allocation.quantity import Quantity
from allocation.request import requests_gpu
from allocation.settings import AllocationSettings
from webhook.patch import Operation, pointer, remove, replace
from webhook.review import PodContainer, PodSpec


def memory(decision: Decision, settings: AllocationSettings) -> str:
    """Return the amount of the memory resource that bindings set; empty for none, or if it cannot be expressed."""
    if decision.memory_mib is None or decision.memory_mib % settings.memory_factor:
        return ""
    return str(decision.memory_mib // settings.memory_factor)


def with_memory(spec: PodSpec, settings: AllocationSettings, *, amount: str) -> PodSpec:
    """Return `spec` with this `amount` of memory in its GPU containers."""

    def bind(container: PodContainer) -> PodContainer:
        if not requests_gpu(container, settings):
            return container
        limits, requests = container.resources.limits, container.resources.requests
        limits = {**_without(limits or {}, settings), settings.resources.memory: amount}
        return msgspec.structs.replace(
            container, resources=Resources(limits, _without(requests, settings) if requests else requests)
        )

    return msgspec.structs.replace(
        spec,
        init_containers=[bind(container) for container in spec.init_containers],
        containers=[bind(container) for container in spec.containers],
    )


def warnings(
    spec: PodSpec, annotations: Mapping[str, str], decision: Decision, settings: AllocationSettings, *, amount: str
) -> Iterator[str]:
    """Iterate over warnings for the pod's creator about what does not count, `amount` being the memory that does."""
    if decision.granted is None:
        return
    app = decision.granted.identity
    if app is None:
        yield f"the pod will wait: it has no owner application, which label {names.APP_NAME} names"
        return
    if names.USE_UUIDS in annotations:
        yield f"annotation {names.USE_UUIDS} was removed: GPUBindings decide which cards pods of {app} get"
    if decision.memory_mib is not None and not amount:
        yield f"GPUBindings set {decision.memory_mib} MiB, which is not a multiple of {settings.memory_factor} MiB"
    for container in (*spec.init_containers, *spec.containers) if amount else ():
        for name, stated in _replaced(container, amount, settings).items():
            yield (
                f"container {container.name}: {name} {stated} does not count: GPUBindings of {app} set"
                f" {settings.resources.memory} {amount}"
            )


def annotation_operations(annotations: Mapping[str, str], granted: Granted | None) -> Iterator[Operation]:
    """Iterate over the operations that remove the pod's own list of cards."""
    if granted is not None and granted.identity is not None and names.USE_UUIDS in annotations:
        yield remove(pointer("metadata", "annotations", names.USE_UUIDS))


def resource_operations(spec: PodSpec, settings: AllocationSettings, *, amount: str) -> Iterator[Operation]:
    """Iterate over the operations that replace the memory which GPU containers state; none if `amount` is empty."""
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers)) if amount else ()
    for field, containers in lists:
        for position, container in enumerate(containers):
            for kind, stated in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                for name in _replaced_in(stated or {}, amount, settings):
                    path = pointer("spec", field, position, "resources", kind, name)
                    yield replace(path, amount) if name == settings.resources.memory else remove(path)


def _replaced(container: PodContainer, amount: str, settings: AllocationSettings) -> dict[str, Quantity]:
    stated = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    return {name: stated[name] for name in _replaced_in(stated, amount, settings)}


def _replaced_in(stated: Mapping[str, Quantity], amount: str, settings: AllocationSettings) -> Iterator[str]:
    if settings.resources.memory in stated and not _equals(stated[settings.resources.memory], amount):
        yield settings.resources.memory
    if settings.resources.memory_percentage in stated:
        yield settings.resources.memory_percentage


def _equals(stated: Quantity, amount: str) -> bool:
    """Whether a quantity is an amount; the API server writes `24k` for 24000."""
    try:
        return quantity.parse(stated) == int(amount)
    except AllocationError:
        return False


def _without(stated: Mapping[str, Quantity], settings: AllocationSettings) -> dict[str, Quantity]:
    memory = (settings.resources.memory, settings.resources.memory_percentage)
    return {name: amount for name, amount in stated.items() if name not in memory}
