"""The ResourceSlice of a node: one device for each card that pods may share by memory, compute and slots.

Kubernetes allocates a part of a device if the request states a capacity, and otherwise the default, which is the whole
memory. Health and cordons are taints; only another set of devices is another generation of the pool.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from agent.report import DeviceReport, NodeReport
from allocation import names, quantity
from allocation.inventory import Card
from allocation.request import MILLI_PER_PERCENT
from allocation.topology.layout import NUMA_UNKNOWN
from cluster.resource import RESOURCE_SLICES

Presence = Literal["absent", "closed", "open"]
"""Whether a node has a slice, and whether pods may get new devices of it."""

MOST_DEVICES: Final = 64
"""The most devices of a slice whose devices have taints; further cards are left out."""
_LONGEST_VALUE: Final = 64
"""The most characters of an attribute."""
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def body(
    report: NodeReport,
    *,
    cordoned: Collection[str] = (),
    node_uid: str = "",
    is_closed: bool = False,
    present: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the slice of a node.

    Args:
        report: the cards.
        cordoned: the UUIDs of the cards that take no new pods.
        node_uid: the UID of the Node, which owns the slice; empty if unknown.
        is_closed: whether no device is to be allocated any more.
        present: the slice as it is now; None if it does not exist.
    """
    devices = [
        _device(each, node=report.node, version=_version(report.driver_version), taints=taints)
        for each in _offered(report)
        for taints in [[*_taints(each, cordoned), *([_taint(names.NODE_DRAINING_TAINT)] if is_closed else [])]]
    ]
    metadata: dict[str, Any] = {"name": names.resource_slice(report.node)}
    if node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": report.node, "uid": node_uid}
        metadata["ownerReferences"] = [owner]
    pool = {"name": report.node, "generation": _generation(devices, present), "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": metadata,
        "spec": {"driver": names.DRA_DRIVER, "nodeName": report.node, "pool": pool, "devices": devices},
    }


def presence(present: Mapping[str, Any] | None) -> Presence:
    """Return whether a node has this slice, and whether pods may get devices of it."""
    if present is None:
        return "absent"
    return "closed" if all(_is_closed(each) for each in _devices(present)) else "open"


def is_same(wanted: Mapping[str, Any], present: Mapping[str, Any] | None) -> bool:
    """Whether the present slice is the wanted one; the API server adds the time of a taint, and fields of its own."""
    return present is not None and _comparable(wanted) == _comparable(present)


def device_name(card: Card) -> str:
    """Return the name of the device that a card is, unique on its node."""
    return f"gpu-{card.index}"


# ---- devices ---------------------------------------------------------------------------------------------------------


def _offered(report: NodeReport) -> Sequence[DeviceReport]:
    """Return the cards that are devices, in the order of their indexes.

    Left out are cards in MIG mode and their instances, cards that the node does not have any more, and those that a
    slice cannot name.
    """
    found = {
        each.card.index: each
        for each in report.devices
        if each.card.is_undivided
        and not each.missing
        and len(each.card.uuid) <= _LONGEST_VALUE
        and each.card.memory_mib > 0
        and each.card.slots > 0
    }
    return [found[index] for index in sorted(found)][:MOST_DEVICES]


def _device(report: DeviceReport, *, node: str, version: str, taints: list[dict[str, str]]) -> dict[str, Any]:
    card = report.card
    attributes: dict[str, dict[str, Any]] = {
        "uuid": {"string": card.uuid},
        "index": {"int": card.index},
        "model": {"string": card.model[:_LONGEST_VALUE]},
    }
    if report.island:
        attributes["nvlinkIsland"] = {"string": f"{node}-{report.island}"[-_LONGEST_VALUE:]}
    if card.numa != NUMA_UNKNOWN:
        attributes["numa"] = {"int": card.numa}
    if version:
        attributes["driverVersion"] = {"version": version}
    memory, percent, slots = f"{card.memory_mib}Mi", str(card.cores // MILLI_PER_PERCENT), str(card.slots)
    device: dict[str, Any] = {
        "name": device_name(card),
        "allowMultipleAllocations": True,
        "attributes": attributes,
        "capacity": {
            "memory": _capacity(memory, default=memory, least="1Mi", most=memory, step="1Mi"),
            "cores": _capacity(percent, default="0", least="0", most=percent, step="1"),
            "slots": _capacity(slots, default="1", least="1", most="1"),
        },
    }
    if taints:
        device["taints"] = taints
    return device


def _capacity(value: str, *, default: str, least: str, most: str, step: str = "") -> dict[str, Any]:
    """Return a capacity of which a request without an amount gets the `default`."""
    valid = {"min": least, "max": most}
    # The API server accepts a step only within the capacity.
    if step and value != least:
        valid["step"] = step
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}


def _taints(report: DeviceReport, cordoned: Collection[str]) -> Iterable[dict[str, str]]:
    if not report.card.healthy:
        yield _taint(names.CARD_UNHEALTHY_TAINT)
    if report.card.uuid in cordoned:
        yield _taint(names.CARD_CORDONED_TAINT)


def _taint(key: str) -> dict[str, str]:
    """Return a taint that keeps new pods off a device, and lets those stay that have it."""
    return {"key": key, "effect": "NoSchedule"}


def _version(driver: str) -> str:
    """Return a driver's version as a semantic version, whose numbers have no leading zeros; else nothing."""
    match = _VERSION.fullmatch(driver)
    return ".".join(str(int(number or 0)) for number in match.groups()) if match else ""


# ---- the present slice -----------------------------------------------------------------------------------------------


def _generation(devices: Sequence[Mapping[str, Any]], present: Mapping[str, Any] | None) -> int:
    if present is None:
        return 1
    generation: int = present.get("spec", {}).get("pool", {}).get("generation", 1)
    return generation if _identities(devices) == _identities(_devices(present)) else generation + 1


def _identities(devices: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    return frozenset((each["name"], each.get("attributes", {}).get("uuid", {}).get("string", "")) for each in devices)


def _devices(present: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = present.get("spec", {}).get("devices") or ()
    return found


def _is_closed(device: Mapping[str, Any]) -> bool:
    return any(each.get("key") == names.NODE_DRAINING_TAINT for each in device.get("taints", ()))


def _comparable(slice_: Mapping[str, Any]) -> object:
    spec = slice_.get("spec", {})
    devices = {
        each["name"]: {
            **each,
            "taints": {(taint.get("key"), taint.get("effect")) for taint in each.get("taints", ())},
            "capacity": _decoded(each.get("capacity", {})),
        }
        for each in _devices(slice_)
    }
    owners = [each.get("uid") for each in slice_.get("metadata", {}).get("ownerReferences", ())]
    return spec.get("driver"), spec.get("nodeName"), spec.get("pool"), devices, owners


def _decoded(capacity: Mapping[str, Any]) -> Any:
    """Return a capacity whose quantities are numbers: the API server writes 1024Mi as 1Gi."""

    def number(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: number(each) for key, each in value.items()}
        return quantity.parse(value) if isinstance(value, str) else value

    return number(capacity)
