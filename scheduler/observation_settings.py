"""The settings of what the scheduler learns about cards that is not its own doing: other drivers, and real use."""

import msgspec


class DraSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What other drivers of dynamic resource allocation (DRA) do with the cards.

    Attributes:
        foreign_drivers: the DRA drivers whose devices may be our cards. What they have allocated is counted; an empty
            list counts nothing.
    """

    foreign_drivers: tuple[str, ...] = ("gpu.nvidia.com",)


class MeasurementSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the scheduler reads from the agents about what containers really use; it decides nothing by that.

    Attributes:
        read_seconds: the interval between two readings of a node; 0 reads nothing.
        idle_seconds: a share is idle when no kernel of its pod has run for as long.
    """

    read_seconds: float = 60.0
    idle_seconds: float = 1800.0

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.read_seconds < 0:
            raise ValueError(f"measurements.read_seconds is {self.read_seconds:g}: it must not be negative")
        if self.idle_seconds <= 0:
            raise ValueError(f"measurements.idle_seconds is {self.idle_seconds:g}: it must be above 0")
