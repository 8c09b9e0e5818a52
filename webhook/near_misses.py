"""Refuses resource names that are almost ours: no node offers them, so a pod with one would never be scheduled."""

from collections.abc import Iterator
from typing import Final

from allocation import quantity
from allocation.errors import AllocationError, InvalidFieldError
from allocation.names import LIMITS, MODE
from allocation.quantity import Quantity
from allocation.settings import AllocationSettings
from allocation.similar_names import closest
from webhook.resources import stated_resources
from webhook.review import PodContainer, PodSpec

_DOMAIN: Final = "nvidia.com/"
_DEVICE_PLUGIN_PREFIXES: Final = (f"{_DOMAIN}mig-", f"{_DOMAIN}gpu.shared")
"""Resources of NVIDIA's device plugin; they are not misspellings."""


def refuse(spec: PodSpec, settings: AllocationSettings) -> None:
    """Refuse a pod with a resource whose name differs from one of ours by a few characters.

    Raises:
        InvalidFieldError: the message names the resource and the one that was probably meant.
    """
    for field, container in _containers(spec):
        for name, amount in stated_resources(container).items():
            intended = _intended(name, settings)
            if intended:
                raise InvalidFieldError(
                    field=f'{field}.resources.limits["{name}"]',
                    value=amount,
                    expected="no node offers a resource of this name",
                    remedy=f"did you mean {intended}?",
                )


def refuse_unequal(spec: PodSpec, settings: AllocationSettings) -> None:
    """Refuse a container whose limit of memory or compute differs from its request, and say how that is written.

    The API server would refuse it as well, but does not know the annotation.

    Raises:
        InvalidFieldError: the message names the resource and the annotation.
    """
    resources = settings.resources
    for field, container in _containers(spec):
        limits, requests = container.resources.limits or {}, container.resources.requests or {}
        for name, key in ((resources.memory, "gpumem"), (resources.cores, "gpucores")):
            if name in limits and name in requests and not _are_equal(limits[name], requests[name]):
                raise InvalidFieldError(
                    field=f'{field}.resources.requests["{name}"]',
                    value=requests[name],
                    expected="Kubernetes wants the request of such a resource to equal its limit",
                    remedy=(
                        f"write {requests[name]} in both, and the limit as annotation"
                        f' {LIMITS}: {{"{container.name}":{{"{key}":{limits[name]}}}}}'
                    ),
                )


def of_device_plugin(spec: PodSpec, settings: AllocationSettings) -> Iterator[str]:
    """Iterate over warnings about resources that only NVIDIA's device plugin offers, with what to write instead."""
    names = settings.resources
    for field, container in _containers(spec):
        for name in stated_resources(container):
            if name.startswith(_DEVICE_PLUGIN_PREFIXES):
                instead = (
                    f"for a MIG instance write {names.count}: 1, {names.memory} with its MiB, and annotation"
                    f' {MODE}: "mig", or name a GpuClaim with exclusivity MIG'
                    if name.startswith(_DEVICE_PLUGIN_PREFIXES[0])
                    else f"for a part of a card write {names.count}: 1 and {names.memory} or {names.memory_percentage}"
                )
                yield (
                    f"{field}: {name} is a resource of NVIDIA's device plugin, and the pod waits unless a node has that"
                    f" plugin: {instead}"
                )


def _are_equal(left: Quantity, right: Quantity) -> bool:
    """Whether two amounts are equal, however they are written; those that cannot be read are left to others."""
    try:
        return left == right or quantity.parse(left) == quantity.parse(right)
    except AllocationError:
        return True


def _containers(spec: PodSpec) -> Iterator[tuple[str, PodContainer]]:
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            yield f"spec.{kind}[{position}]", container


def _intended(name: str, settings: AllocationSettings) -> str:
    """Return our resource that `name` probably means, or an empty string where `name` is not a near miss."""
    ours = settings.resources.managed()
    if not name.startswith(_DOMAIN) or name in ours or name.startswith(_DEVICE_PLUGIN_PREFIXES):
        return ""
    return closest(name, [each for each in ours if each.startswith(_DOMAIN)])
