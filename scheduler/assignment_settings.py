"""The settings of the numbers that pods get: indexes and host ports."""

import re
from typing import Final

import msgspec

_RANGE: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)


class AssignmentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which numbers pods get on request (docs/api.md#indexes-and-host-ports).

    Attributes:
        port_range: the host ports, such as `40000-40999`, both included; empty assigns neither ports nor indexes.
        most_per_namespace: how many indexes, and how many ports, the pods of one namespace have at most.
    """

    port_range: str = ""
    most_per_namespace: int = 32

    @property
    def ports(self) -> tuple[int, int] | None:
        """The first port and the one after the last; None without a range."""
        match = _RANGE.fullmatch(self.port_range)
        return (int(match[1]), int(match[2]) + 1) if match is not None else None

    def __post_init__(self) -> None:
        """Refuse a text that is not a range of ports, and a namespace without numbers."""
        ports = self.ports
        if self.port_range and (ports is None or not 1024 <= ports[0] < ports[1] <= 65536):
            raise ValueError(
                f"port_range is {self.port_range!r}: it must be two ports from 1024 to 65535 such as 40000-40999, the"
                " smaller one first"
            )
        if self.most_per_namespace < 1:
            raise ValueError(f"most_per_namespace is {self.most_per_namespace}: it must be at least 1")
