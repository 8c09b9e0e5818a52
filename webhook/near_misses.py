"""Refuses resource names that are almost ours: no node offers them, so a pod with one would never be scheduled."""

from collections.abc import Iterator
from typing import Final

from allocation.errors import InvalidFieldError
from allocation.names import MODE
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
