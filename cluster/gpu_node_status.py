"""The GpuNodeStatus object: what an agent says of its node's cards."""

import msgspec

from allocation.inventory import Card, NodeInventory
from cluster.metadata import ObjectMeta

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Device(msgspec.Struct, rename={"memory_mib": "memoryMiB", "bandwidth_gbps": "bandwidthGBps"}):
    """One card, as in `status.devices`.

    Attributes:
        bandwidth_gbps: GB/s of its active NVLinks in one direction, summed and rounded down.
        island: cards with the same, non-empty island on one node reach each other over NVLink.
        message: why it is not Healthy; empty where it is.
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


class Status(msgspec.Struct, rename="camel"):
    """`status`: the devices, their number, and what the node has for all of them.

    Attributes:
        driver_version: NVML's; empty where no driver was asked.
        isolation: the backends that can enforce limits on this node; `none` is always one of them.
    """

    devices: list[Device] = []
    total: int = 0
    driver_version: str = ""
    isolation: list[str] = []


class GpuNodeStatus(msgspec.Struct):
    """The object; it is called like its node."""

    metadata: ObjectMeta
    status: Status | None = None

    def inventory(self) -> NodeInventory:
        """Answer the cards in the order of their indexes."""
        devices = sorted(self.status.devices if self.status else [], key=lambda device: device.id)
        return NodeInventory(
            self.metadata.name,
            tuple(
                Card(
                    uuid=device.uuid,
                    index=device.id,
                    memory_mib=device.memory_mib,
                    cores=device.cores,
                    slots=device.slots,
                    model=device.model,
                    numa=device.numa,
                    mode=device.mode,
                    healthy=device.health == HEALTHY,
                )
                for device in devices
            ),
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
        )
        for card in sorted(inventory.cards, key=lambda card: card.index)
    ]
    return Status(devices, len(devices))
