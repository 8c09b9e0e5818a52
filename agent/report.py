"""What an agent reports about a node: its cards, and the details that the ledger's cards do not hold."""

from typing import Final

import msgspec

from allocation.delivery import NodeDelivery
from allocation.inventory import Card, NodeInventory
from allocation.mig import MODE
from cluster.gpu_node_status import Status, status_of
from cluster.mig_status import InstanceRequestStatus

NO_ISOLATION: Final = "none"


class DeviceReport(msgspec.Struct, frozen=True):
    """One card, with what only people and the topology need.

    Attributes:
        card: the card.
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: the NVLink island, named within its node; empty if the card has no NVLink.
        message: why the card is unhealthy; empty if it is healthy.
    """

    card: Card
    bandwidth_gbps: int = 0
    island: str = ""
    message: str = ""


class NodeReport(msgspec.Struct, frozen=True):
    """The devices of one node in the order of their indexes, its driver, and the isolation backends that it offers.

    `mig_instances` is the status of the scheduler's instance requests; `delivery` is None until it was found out.
    """

    node: str
    devices: tuple[DeviceReport, ...] = ()
    driver_version: str = ""
    isolation: tuple[str, ...] = (NO_ISOLATION,)
    mig_instances: tuple[InstanceRequestStatus, ...] = ()
    delivery: NodeDelivery | None = None

    @property
    def creates_instances(self) -> bool:
        """Whether the agent creates MIG instances on this node."""
        return any(device.card.is_mig_enabled and device.card.instances_by == "agent" for device in self.devices)

    @property
    def inventory(self) -> NodeInventory:
        """The cards as the ledger represents them."""
        return NodeInventory(self.node, tuple(device.card for device in self.devices))

    def status(self) -> Status:
        """Return the report as the `status` of a GpuNodeStatus."""
        status = status_of(self.inventory)
        for device, report in zip(status.devices, self.devices, strict=True):
            device.bandwidth_gbps = report.bandwidth_gbps
            device.island = report.island
            device.message = report.message
        status.driver_version = self.driver_version
        has_mig = any(device.card.mode == MODE for device in self.devices)
        status.isolation = [*self.isolation, *([MODE] if has_mig else [])]
        if self.delivery is not None:
            status.delivery = self.delivery
        if self.mig_instances:
            status.mig_instances = self.mig_instances
        return status
