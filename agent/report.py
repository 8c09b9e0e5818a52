"""What an agent says of one node: the cards, and what a card of the ledger has no place for."""

from typing import Final

import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.mig import MODE
from cluster.gpu_node_status import Status, status_of
from cluster.mig_status import WishStatus

NO_ISOLATION: Final = "none"


class DeviceReport(msgspec.Struct, frozen=True):
    """One card and what only people and topology need to know of it.

    Attributes:
        card: the card.
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: the NVLink island, named within its node; empty where the card has no NVLink.
        message: why the card is unhealthy; empty where it is healthy.
    """

    card: Card
    bandwidth_gbps: int = 0
    island: str = ""
    message: str = ""


class NodeReport(msgspec.Struct, frozen=True):
    """The devices of one node in the order of their indexes, its driver, and the isolation that it can offer.

    `mig_instances` is what became of the scheduler's wishes.
    """

    node: str
    devices: tuple[DeviceReport, ...] = ()
    driver_version: str = ""
    isolation: tuple[str, ...] = (NO_ISOLATION,)
    mig_instances: tuple[WishStatus, ...] = ()

    @property
    def is_dividing(self) -> bool:
        """Whether the agent makes MIG instances here."""
        return any(device.card.is_divided and device.card.instances_by == "agent" for device in self.devices)

    @property
    def inventory(self) -> NodeInventory:
        """Answer the cards as the ledger knows them."""
        return NodeInventory(self.node, tuple(device.card for device in self.devices))

    def status(self) -> Status:
        """Answer the `status` of the GpuNodeStatus that says all of it."""
        status = status_of(self.inventory)
        for device, report in zip(status.devices, self.devices, strict=True):
            device.bandwidth_gbps = report.bandwidth_gbps
            device.island = report.island
            device.message = report.message
        status.driver_version = self.driver_version
        has_mig = any(device.card.mode == MODE for device in self.devices)
        status.isolation = [*self.isolation, *([MODE] if has_mig else [])]
        if self.mig_instances:
            status.mig_instances = self.mig_instances
        return status
