"""The GpuNodeStatus object: what an agent says of its node's cards."""

import msgspec

from allocation.inventory import Card, NodeInventory
from cluster.reflector import ObjectMeta

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


class Device(msgspec.Struct, rename={"memory_mib": "memoryMiB"}):
    """One card, as in `status.devices`."""

    id: int
    uuid: str
    memory_mib: int
    cores: int = 1000
    slots: int = 10
    model: str = ""
    numa: int = 0
    mode: str = "hami-core"
    health: str = HEALTHY


class Status(msgspec.Struct):
    """`status`: the devices and their number."""

    devices: list[Device] = []
    total: int = 0


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
        )


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
