"""A ResourceClaim as kube-scheduler has allocated it: the parts of cards that each of its requests has."""

import msgspec

from allocation.names import DRA_DRIVER
from cluster.metadata import ObjectMeta


class Result(msgspec.Struct, frozen=True):
    """A device that is allocated to a request.

    Attributes:
        request: the name of the request; `<request>/<alternative>` if it has alternatives.
        driver: the driver of the device.
        pool: the pool of the device, which has the name of the node.
        device: its name.
        share_id: what tells this part of the device from others.
        consumed_capacity: how much of each capacity it is.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, str] = msgspec.field(default_factory=dict, name="consumedCapacity")

    @property
    def base_request(self) -> str:
        """The name of the request, by which containers refer to it."""
        return self.request.partition("/")[0]


class Devices(msgspec.Struct):
    """The devices of an allocation; the API server accepts 32."""

    results: tuple[Result, ...] = ()


class Allocation(msgspec.Struct):
    """The allocation of a claim."""

    devices: Devices = msgspec.field(default_factory=Devices)


class Status(msgspec.Struct):
    """The status of a claim."""

    allocation: Allocation | None = None


class Claim(msgspec.Struct):
    """A ResourceClaim; what it requests is not read, only what it has."""

    metadata: ObjectMeta
    status: Status = msgspec.field(default_factory=Status)

    def results(self, node: str) -> tuple[Result, ...]:
        """Return the devices that it has of the cards of a node."""
        allocation = self.status.allocation
        if allocation is None:
            return ()
        return tuple(each for each in allocation.devices.results if (each.driver, each.pool) == (DRA_DRIVER, node))
