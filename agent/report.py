"""What an agent reports about a node: its cards, and the details that the ledger's cards do not hold."""

import msgspec

from allocation.delivery import NodeDelivery
from allocation.fabric import NO_FABRIC, Fabric
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.mig import MODE
from allocation.node_isolation import NO_ISOLATION, NodeIsolation
from allocation.topology.layout import PeerLink
from cluster.gpu_node_status import Allocator, NodeProblem, Status, status_of
from cluster.mig_status import InstanceRequestStatus


class DeviceReport(msgspec.Struct, frozen=True):
    """One card, with what only people and the topology need.

    Attributes:
        card: the card.
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: the NVLink island, named within its node; empty if the card has no NVLink.
        message: why the card is unhealthy; empty if it is healthy.
        links: its NVLinks to other cards; empty behind switches and without links.
        pcie_groups: the cards near it on PCIe (`cluster.gpu_node_status.Device`); empty if unknown.
        missing: whether the node does not have the card any more; it is unhealthy then, too.
    """

    card: Card
    bandwidth_gbps: int = 0
    island: str = ""
    message: str = ""
    links: tuple[PeerLink, ...] = ()
    pcie_groups: tuple[int, ...] = ()
    missing: bool = False


class NodeReport(msgspec.Struct, frozen=True):
    """The devices of one node in the order of their indexes, its driver, and what else it offers.

    `mig_instances` is the status of the scheduler's instance requests; `isolation` is None until it was found out, and
    so are `delivery` and `fabric`: a source that knows them, such as a fleet file, sets them. An `incomplete` report
    lacks cards that are there and could not be read. With a `problem` no card can be used now, and the devices are
    those that the node had last. `allocator` is None if the ledger always gave out the cards, and `drain` is empty
    unless it is `draining`.
    """

    node: str
    devices: tuple[DeviceReport, ...] = ()
    driver_version: str = ""
    isolation: NodeIsolation | None = None
    mig_instances: tuple[InstanceRequestStatus, ...] = ()
    delivery: NodeDelivery | None = None
    fabric: Fabric | None = None
    incomplete: bool = False
    problem: NodeProblem | None = None
    allocator: Allocator | None = None
    drain: str = ""

    @property
    def creates_instances(self) -> bool:
        """Whether the agent creates MIG instances on this node."""
        return any(device.card.is_mig_enabled and device.card.instances_by == "agent" for device in self.devices)

    @property
    def inventory(self) -> NodeInventory:
        """The cards as the ledger represents them."""
        return NodeInventory(self.node, tuple(device.card for device in self.devices))

    @property
    def registered(self) -> NodeInventory:
        """The cards in the register annotation, by which the ledger alone gives them out: none while it must not."""
        return self.inventory if self.allocator in (None, "ledger") else NodeInventory(self.node, ())

    def status(self) -> Status:
        """Return the report as the `status` of a GpuNodeStatus."""
        status = status_of(self.inventory)
        for device, report in zip(status.devices, self.devices, strict=True):
            device.bandwidth_gbps = report.bandwidth_gbps
            device.island = report.island
            device.message = report.message
            if report.links:
                device.links = report.links
            if report.pcie_groups:
                device.pcie_groups = report.pcie_groups
            if report.missing:
                device.missing = True
        status.driver_version = self.driver_version
        self._set_isolation(status)
        if self.delivery is not None:
            status.delivery = self.delivery
        if self.fabric not in (None, NO_FABRIC):
            status.fabric = self.fabric
        if self.incomplete:
            status.incomplete = True
        if self.problem is not None:
            status.state, status.message = self.problem.state, self.problem.message
        if self.mig_instances:
            status.mig_instances = self.mig_instances
        self._set_allocator(status)
        return status

    def _set_allocator(self, status: Status) -> None:
        if self.allocator is not None:
            status.allocator = self.allocator
        if self.drain:
            status.drain = self.drain

    def _set_isolation(self, status: Status) -> None:
        isolation, has_mig = self.isolation or NO_ISOLATION, any(each.card.mode == MODE for each in self.devices)
        offered = {Isolation.NONE, *isolation.offered, *((Isolation.MIG,) if has_mig else ())}
        status.isolation = [each.value for each in Isolation if each in offered]
        if isolation.problems:
            status.isolation_problems = isolation.problems
