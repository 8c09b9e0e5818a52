"""What pods really use of their cards, as the HTTP API returns it and the command line shows it."""

from typing import Literal

import msgspec


class ContainerUse(msgspec.Struct, frozen=True, rename="camel"):
    """What the processes of one container use of a card; null is unknown.

    Attributes:
        id: the container's ID, without the name of the runtime.
    """

    id: str
    memory_bytes: int | None
    utilization_percent: int | None


class PodUse(msgspec.Struct, frozen=True, rename="camel"):
    """What one pod uses of one card.

    Attributes:
        uid: the pod's UID.
        use: `idle` if no kernel of it has run on the card for `scheduler.measurements.idle_seconds`.
        inactive_seconds: for how long no kernel of it has run; null if unknown.
        containers: its containers with processes on the card; the others use nothing, unless there is a `problem`.
        problem: why what it uses is unknown; empty if it is known.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    device: str
    use: Literal["active", "idle", "unknown"]
    inactive_seconds: float | None
    containers: tuple[ContainerUse, ...]
    problem: str = ""


class DeviceUse(msgspec.Struct, frozen=True, rename="camel"):
    """What all processes together use of a card or MIG instance, those outside of pods included; null is unknown."""

    node: str
    device: str
    memory_used_bytes: int | None
    utilization_percent: int | None


class UsageView(msgspec.Struct, frozen=True, rename="camel"):
    """What pods use, sorted by namespace, name and card.

    Attributes:
        pods: each pod once for each of its cards.
        devices: the cards; none for users of one namespace, who would learn what others use.
        problem: why nothing is measured at all, or empty.
    """

    pods: tuple[PodUse, ...]
    devices: tuple[DeviceUse, ...] = ()
    problem: str = ""
