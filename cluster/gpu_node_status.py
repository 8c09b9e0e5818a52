"""The GpuNodeStatus object: what an agent says of its node's cards."""

import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.mig import Creator, Wish
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceStatus, ProfileStatus, WishStatus

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Device(
    msgspec.Struct,
    rename={
        "memory_mib": "memoryMiB",
        "bandwidth_gbps": "bandwidthGBps",
        "mig_profiles": "migProfiles",
        "instances_by": "instancesBy",
    },
):
    """One card, or one MIG instance of a card, as in `status.devices`.

    Attributes:
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: cards with the same, non-empty island on one node reach each other over NVLink.
        message: why it is not Healthy; empty where it is.
        instance: what it is an instance of; unset for a physical card, as are the other two for one not in MIG mode.
        mig_profiles: the instances that it can have.
        instances_by: who makes them.
    """

    id: int
    uuid: str
    memory_mib: int
    cores: int = 1000
    slots: int = 10
    model: str = ""
    numa: int = 0
    mode: str = "hami-core"
    health: str = HEALTHY
    message: str = ""
    bandwidth_gbps: int = 0
    island: str = ""
    instance: InstanceStatus | msgspec.UnsetType = msgspec.UNSET
    mig_profiles: tuple[ProfileStatus, ...] | msgspec.UnsetType = msgspec.UNSET
    instances_by: Creator | msgspec.UnsetType = msgspec.UNSET

    def card(self) -> Card:
        """Answer it as the ledger knows it."""
        instance, profiles, creator = self.instance, self.mig_profiles, self.instances_by
        return Card(
            uuid=self.uuid,
            index=self.id,
            memory_mib=self.memory_mib,
            cores=self.cores,
            slots=self.slots,
            model=self.model,
            numa=self.numa,
            mode=self.mode,
            healthy=self.health == HEALTHY,
            instance=None if instance is msgspec.UNSET else instance.instance(),
            mig_profiles=() if profiles is msgspec.UNSET else tuple(each.profile() for each in profiles),
            instances_by="plugin" if creator is msgspec.UNSET else creator,
        )


class Spec(msgspec.Struct, rename="camel"):
    """`spec`: whose cards these are, and what the scheduler asks of the agent.

    Attributes:
        mig_instances: the instances that are to be there besides those that an administrator made; None where no
            scheduler has said, so that nothing is to be destroyed.
    """

    node_name: str = ""
    mig_instances: tuple[Wish, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """`status`: the devices, their number, and what the node has for all of them.

    Attributes:
        driver_version: NVML's; empty where no driver was asked.
        isolation: the backends that can enforce limits on this node; `none` is always one of them.
        mig_instances: what became of the wishes of `spec`; unset where there are none.
    """

    devices: list[Device] = []
    total: int = 0
    driver_version: str = ""
    isolation: list[str] = []
    mig_instances: tuple[WishStatus, ...] | msgspec.UnsetType = msgspec.UNSET


class GpuNodeStatus(msgspec.Struct):
    """The object; it is called like its node."""

    metadata: ObjectMeta
    status: Status | None = None
    spec: Spec = msgspec.field(default_factory=Spec)

    def inventory(self) -> NodeInventory:
        """Answer the cards in the order of their indexes, instances with their card."""
        devices = sorted(self.status.devices if self.status else [], key=lambda device: device.id)
        return NodeInventory(
            self.metadata.name,
            tuple(device.card() for device in devices),
            _pair_scores(devices),
        )


def _pair_scores(devices: list[Device]) -> dict[str, dict[str, int]]:
    """Answer how well cards of one NVLink island reach each other: the smaller of their bandwidths."""
    return {
        one.uuid: {
            other.uuid: min(one.bandwidth_gbps, other.bandwidth_gbps)
            for other in devices
            if other.island == one.island and other is not one
        }
        for one in devices
        if one.island
    }


def status_of(inventory: NodeInventory) -> Status:
    """Answer the `status` that says `inventory`."""
    devices = [
        Device(
            id=card.index,
            uuid=card.uuid,
            memory_mib=card.memory_mib,
            cores=card.cores,
            slots=card.slots,
            model=card.model,
            numa=card.numa,
            mode=card.mode,
            health=HEALTHY if card.healthy else UNHEALTHY,
            instance=msgspec.UNSET if card.instance is None else InstanceStatus.of(card.instance),
            mig_profiles=tuple(map(ProfileStatus.of, card.mig_profiles)) if card.is_divided else msgspec.UNSET,
            instances_by=card.instances_by if card.is_divided else msgspec.UNSET,
        )
        for card in sorted(inventory.cards, key=lambda card: card.index)
    ]
    return Status(devices, len(devices))
