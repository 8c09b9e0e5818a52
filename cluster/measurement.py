"""What containers really use of the cards of a node, as its agent measures it (docs/usage.md).

The agent serves it as JSON at `PATH`; the scheduler reads it. A value that cannot be measured is None: unknown, which
is not 0.
"""

from typing import Annotated, Final

import msgspec

PATH: Final = "/usage"
MOST_CONTAINERS: Final = 1024
"""The most entries that an agent reports: 16 cards with 64 containers each."""
LONGEST_TEXT: Final = 512

Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]


class DeviceMeasurement(msgspec.Struct, frozen=True, rename="camel"):
    """What all processes together use of a card or MIG instance.

    Attributes:
        uuid: the device.
        memory_used_bytes: including what the driver and processes outside of pods use.
        utilization_percent: of the time in which a kernel ran; None also for MIG instances.
        outside_bytes: what processes outside of pods use, and those that ended meanwhile.
        problem: why what the containers use of this device is unknown; empty if it is known.
    """

    uuid: Text
    memory_used_bytes: Bytes | None = None
    utilization_percent: Percent | None = None
    outside_bytes: Bytes | None = None
    problem: Text = ""


class ContainerMeasurement(msgspec.Struct, frozen=True, rename="camel"):
    """What the processes of one container use of a device. A container without an entry uses nothing of it.

    Attributes:
        uid: the pod's UID.
        container_id: the container's ID, without the name of the runtime.
        device: the UUID of the card or MIG instance.
        memory_bytes: the device memory of its processes.
        utilization_percent: of the card's time in which its kernels ran, since the previous measurement.
        inactive_seconds: since when no kernel of it was seen; of one that was never active, since it was first seen.
    """

    uid: Text
    container_id: Text
    device: Text
    memory_bytes: Bytes | None = None
    utilization_percent: Percent | None = None
    inactive_seconds: Seconds | None = None


class NodeMeasurement(msgspec.Struct, frozen=True, rename="camel"):
    """The last measurement of a node.

    Attributes:
        node: the name of the node.
        age_seconds: how old it is.
        devices: the cards and MIG instances; a card in MIG mode is represented by its instances.
        containers: the containers of pods that use them.
        problem: why what containers use is unknown on the whole node; empty if it is known.
    """

    node: Text
    age_seconds: Seconds = 0.0
    devices: tuple[DeviceMeasurement, ...] = ()
    containers: tuple[ContainerMeasurement, ...] = ()
    problem: Text = ""
