"""The parts of an installation and their states."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

PartState = Literal["working", "broken", "missing", "unknown"]
PartName = Literal["installation", "webhook", "RuntimeClass", "scheduler", "kube-scheduler", "agents"]
REQUIRED_FOR_PLACEMENT: Final[tuple[PartName, ...]] = ("installation", "scheduler", "kube-scheduler")
"""The parts without which no pod is placed. The others affect admission, or single nodes."""


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """One part of an installation.

    Attributes:
        name: the name of the part.
        state: `unknown` if the caller has no right to read it.
        object: kind and name of the object that shows the state, such as `Lease tranche-system/tranche-scheduler`.
        message: the problem and its consequence, or why the state is unknown; empty for a part that works.
        next_step: what to do about it.
        stops: whether GPU pods that are created now cannot start until it works again.
    """

    name: PartName
    state: PartState
    object: str
    message: str = ""
    next_step: str = ""
    stops: bool = False


class Liveness(msgspec.Struct, frozen=True, rename="camel"):
    """The state of an installation.

    Attributes:
        installed: whether any part of Tranche is installed.
        parts: in the order in which they handle a pod.
    """

    installed: bool
    parts: tuple[Part, ...]

    @property
    def problems(self) -> tuple[Part, ...]:
        """The parts that do not work."""
        return tuple(part for part in self.parts if part.state in ("broken", "missing"))

    @property
    def unknown(self) -> tuple[Part, ...]:
        """The parts that the caller has no right to read."""
        return tuple(part for part in self.parts if part.state == "unknown")

    @property
    def stops(self) -> bool:
        """Whether GPU pods that are created now do not start."""
        return any(part.stops for part in self.problems)

    def lines(self) -> Iterator[str]:
        """Return the lines that precede the text output, or nothing if all parts work."""
        if not self.problems:
            return
        yield "NOT WORKING"
        for part in self.problems:
            yield f"  {part.name}: {part.object} {part.message}"
            yield f"    -> {part.next_step}"
        yield ""
