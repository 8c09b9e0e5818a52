"""The GpuNodeStatus object, in which an agent reports the cards of its node."""

import msgspec

from allocation.delivery import NodeDelivery
from allocation.inventory import Card, NodeInventory
from allocation.mig import Creator, InstanceRequest
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceRequestStatus, InstanceStatus, ProfileStatus

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
        message: why it is not Healthy; empty if it is.
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
        """Return the device as the ledger represents it."""
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
    """`spec`: the node, and the MIG instances that the scheduler requests.

    Attributes:
        mig_instances: the requested instances, in addition to those of administrators; None if no scheduler has
            written a list, in which case the agent destroys nothing.
    """

    node_name: str = ""
    mig_instances: tuple[InstanceRequest, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """`status`: the devices, their number, and the properties of the node.

    Attributes:
        driver_version: the driver's version according to NVML; empty if no driver was read.
        isolation: the backends that can enforce limits on this node; `none` is always one of them.
        mig_instances: the status of the instance requests in `spec`; unset without any.
        delivery: how containers of the node get their cards; unset if the agent is older than the field.
    """

    devices: list[Device] = []
    total: int = 0
    driver_version: str = ""
    isolation: list[str] = []
    mig_instances: tuple[InstanceRequestStatus, ...] | msgspec.UnsetType = msgspec.UNSET
    delivery: NodeDelivery | msgspec.UnsetType = msgspec.UNSET


class GpuNodeStatus(msgspec.Struct):
    """The object; its name is that of its node."""

    metadata: ObjectMeta
    status: Status | None = None
    spec: Spec = msgspec.field(default_factory=Spec)

    def inventory(self) -> NodeInventory:
        """Return the cards in the order of their indexes, each instance after its card."""
        devices = sorted(self.status.devices if self.status else [], key=lambda device: device.id)
        return NodeInventory(
            self.metadata.name,
            tuple(device.card() for device in devices),
            _pair_scores(devices),
        )


def _pair_scores(devices: list[Device]) -> dict[str, dict[str, int]]:
    """Return the topology score of each pair of cards in an NVLink island: the smaller of their bandwidths."""
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
    """Return the `status` that represents `inventory`."""
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
            mig_profiles=tuple(map(ProfileStatus.of, card.mig_profiles)) if card.is_mig_enabled else msgspec.UNSET,
            instances_by=card.instances_by if card.is_mig_enabled else msgspec.UNSET,
        )
        for card in sorted(inventory.cards, key=lambda card: card.index)
    ]
    return Status(devices, len(devices))
