"""The last inventory of a node, kept while its cards cannot be read.

Pods may still use these cards, so they stay published and counted; as unhealthy ones they get no new pods.
"""

from collections.abc import Sequence

import msgspec

from agent.report import DeviceReport, NodeReport
from cluster.gpu_node_status import Device, Status


def devices_of(status: Status | None) -> tuple[DeviceReport, ...]:
    """Return the devices that an earlier process published."""
    return () if status is None else tuple(map(_read, status.devices))


def with_last(report: NodeReport, devices: Sequence[DeviceReport]) -> NodeReport:
    """Return `report`, which has a problem, with the devices that the node had last."""
    message = report.problem.message if report.problem is not None else ""
    kept = (
        msgspec.structs.replace(each, card=msgspec.structs.replace(each.card, healthy=False), message=message)
        for each in devices
    )
    return msgspec.structs.replace(report, devices=tuple(kept))


def _read(device: Device) -> DeviceReport:
    return DeviceReport(
        device.card(),
        bandwidth_gbps=device.bandwidth_gbps,
        island=device.island,
        message=device.message,
        links=() if device.links is msgspec.UNSET else device.links,
        pcie_groups=() if device.pcie_groups is msgspec.UNSET else device.pcie_groups,
        missing=device.missing is True,
    )
