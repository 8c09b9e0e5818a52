"""The GpuNodeStatus object, in which an agent reports the cards of its node."""

from typing import Literal

import msgspec

from allocation import node_isolation
from allocation.delivery import NodeDelivery
from allocation.fabric import NO_FABRIC, Fabric
from allocation.inventory import MOST_UNDIVIDED, Card, NodeInventory
from allocation.mig import Creator, InstanceRequest
from allocation.node_isolation import IsolationProblem
from allocation.topology import layout
from allocation.topology.layout import NUMA_UNKNOWN, CardLinks, PeerLink
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceRequestStatus, InstanceStatus, ProfileStatus

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

NodeState = Literal["DriverMissing", "NoCards"]
"""Why the cards of a node cannot be used: its driver does not answer, or lists no card."""


Allocator = Literal["ledger", "draining", "dra"]
"""Who gives out the cards of a node: the ledger; no allocator, while its pods end; Kubernetes by DRA (docs/dra.md)."""


class NodeProblem(msgspec.Struct, frozen=True):
    """Why the cards of a node cannot be used."""

    state: NodeState
    message: str

    def __str__(self) -> str:
        return f"{self.state}: {self.message}"


class Device(
    msgspec.Struct,
    rename={
        "memory_mib": "memoryMiB",
        "bandwidth_gbps": "bandwidthGBps",
        "mig_profiles": "migProfiles",
        "instances_by": "instancesBy",
        "pcie_groups": "pcieGroups",
    },
):
    """One card, or one MIG instance of a card, as in `status.devices`.

    Attributes:
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: cards with the same, non-empty island on one node reach each other over NVLink.
        numa: its NUMA node; unset if unknown.
        links: its links to other cards where they are point to point; unset behind switches and without links.
        pcie_groups: the lowest index among the cards with which it shares its NUMA node, its host bridge, its PCIe
            switches, and its PCIe switch, in this order; unset if unknown.
        message: why it is not Healthy; empty if it is.
        missing: whether the node does not have it any more, though it had; unset if it has it.
        instance: the MIG instance that it is; unset for a physical card.
        mig_profiles: the profiles of instances that it can have; unset for a card that is not in MIG mode.
        instances_by: who creates its instances; unset for a card that is not in MIG mode.
    """

    id: int
    uuid: str
    memory_mib: int
    cores: int = 1000
    slots: int = 10
    model: str = ""
    numa: int | msgspec.UnsetType = msgspec.UNSET
    mode: str = "hami-core"
    health: str = HEALTHY
    message: str = ""
    bandwidth_gbps: int = 0
    island: str = ""
    links: tuple[PeerLink, ...] | msgspec.UnsetType = msgspec.UNSET
    pcie_groups: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    missing: bool | msgspec.UnsetType = msgspec.UNSET
    instance: InstanceStatus | msgspec.UnsetType = msgspec.UNSET
    mig_profiles: tuple[ProfileStatus, ...] | msgspec.UnsetType = msgspec.UNSET
    instances_by: Creator | msgspec.UnsetType = msgspec.UNSET

    def card(self) -> Card:
        """Return the device as the ledger represents it."""
        instance, profiles, creator = self.instance, self.mig_profiles, self.instances_by
        return Card(
            uuid=self.uuid,
            index=self.id,
            memory_mib=self.memory_mib,
            cores=self.cores,
            slots=self.slots,
            model=self.model,
            numa=NUMA_UNKNOWN if self.numa is msgspec.UNSET else self.numa,
            mode=self.mode,
            healthy=self.health == HEALTHY,
            instance=None if instance is msgspec.UNSET else instance.instance(),
            mig_profiles=() if profiles is msgspec.UNSET else tuple(each.profile() for each in profiles),
            instances_by="plugin" if creator is msgspec.UNSET else creator,
        )

    def card_links(self) -> CardLinks:
        """Return what is known of the connections of an undivided card."""
        return CardLinks(
            index=self.id,
            numa=NUMA_UNKNOWN if self.numa is msgspec.UNSET else self.numa,
            island=self.island,
            bandwidth_gbps=self.bandwidth_gbps,
            peers=() if self.links is msgspec.UNSET else self.links,
            pcie=() if self.pcie_groups is msgspec.UNSET else self.pcie_groups,
        )


class Drained(msgspec.Struct, frozen=True):
    """The scheduler's confirmation that no pod with an allocation is left on a node.

    Attributes:
        drain: the drain that it confirms, as in the status.
        leader: the token of the leader that wrote it, which counts only as long as this one leads.
    """

    drain: str = ""
    leader: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """`spec`: the node, and what the scheduler writes.

    Attributes:
        mig_instances: the requested instances, in addition to those of administrators; None if no scheduler has
            written a list, in which case the agent destroys nothing.
        drained: the last confirmation of a drain; None without one.
    """

    node_name: str = ""
    mig_instances: tuple[InstanceRequest, ...] | None = None
    drained: Drained | None = None


class Status(msgspec.Struct, rename="camel"):
    """`status`: the devices, their number, and the properties of the node.

    Attributes:
        driver_version: the driver's version according to NVML; empty if no driver was read.
        isolation: the isolations that this node offers; `none` is always one of them.
        isolation_problems: why it does not offer others; unset if it offers all that its agent looks for.
        mig_instances: the status of the instance requests in `spec`; unset without any.
        delivery: how containers of the node get their cards; unset if the agent is older than the field.
        fabric: the node's adapters and its path to storage; unset without adapters and storage.
        incomplete: whether the node may have cards that are not among the devices, because they could not be read;
            unset if it has none.
        state: why the cards of the node cannot be used, in which case the devices are those that it had last; unset if
            they can be used.
        message: the details of `state`; unset without it.
        allocator: who gives out the cards of the node; unset if it was the ledger always.
        drain: what tells this drain from others while the allocator is `draining`; unset otherwise.
    """

    devices: list[Device] = []
    total: int = 0
    driver_version: str = ""
    isolation: list[str] = []
    isolation_problems: tuple[IsolationProblem, ...] | msgspec.UnsetType = msgspec.UNSET
    mig_instances: tuple[InstanceRequestStatus, ...] | msgspec.UnsetType = msgspec.UNSET
    delivery: NodeDelivery | msgspec.UnsetType = msgspec.UNSET
    fabric: Fabric | msgspec.UnsetType = msgspec.UNSET
    incomplete: bool | msgspec.UnsetType = msgspec.UNSET
    state: NodeState | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET
    allocator: Allocator | msgspec.UnsetType = msgspec.UNSET
    drain: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def problem(self) -> NodeProblem | None:
        """Why the cards cannot be used; None if they can. A list without a card has no state in older reports."""
        if self.state is not msgspec.UNSET:
            return NodeProblem(self.state, self.message or "")
        return None if self.devices else NodeProblem("NoCards", "its agent reports no card")


class GpuNodeStatus(msgspec.Struct):
    """The object; its name is that of its node."""

    metadata: ObjectMeta
    status: Status | None = None
    spec: Spec = msgspec.field(default_factory=Spec)

    @property
    def problem(self) -> NodeProblem | None:
        """Why the cards cannot be used, or None if they can or nothing was reported yet."""
        return self.status.problem if self.status is not None else None

    def inventory(self) -> NodeInventory:
        """Return the cards in the order of their indexes, each instance after its card."""
        devices = sorted(self.status.devices if self.status else [], key=lambda device: device.id)
        cards = tuple(device.card() for device in devices)
        links = tuple(device.card_links() for device, card in zip(devices, cards, strict=True) if card.is_undivided)
        status = self.status or Status()
        return NodeInventory(
            self.metadata.name,
            cards,
            layout.of_links(links) if len(links) <= MOST_UNDIVIDED else None,
            NO_FABRIC if status.fabric is msgspec.UNSET else status.fabric,
            node_isolation.reported(
                status.isolation, () if status.isolation_problems is msgspec.UNSET else status.isolation_problems
            ),
        )


def status_of(inventory: NodeInventory) -> Status:
    """Return the `status` that represents `inventory`."""
    devices = [
        Device(
            id=card.index,
            uuid=card.uuid,
            memory_mib=card.memory_mib,
            cores=card.cores,
            slots=card.slots,
            model=card.model,
            numa=msgspec.UNSET if card.numa == NUMA_UNKNOWN else card.numa,
            mode=card.mode,
            health=HEALTHY if card.healthy else UNHEALTHY,
            instance=msgspec.UNSET if card.instance is None else InstanceStatus.of(card.instance),
            mig_profiles=tuple(map(ProfileStatus.of, card.mig_profiles)) if card.is_mig_enabled else msgspec.UNSET,
            instances_by=card.instances_by if card.is_mig_enabled else msgspec.UNSET,
        )
        for card in sorted(inventory.cards, key=lambda card: card.index)
    ]
    return Status(devices, len(devices))
