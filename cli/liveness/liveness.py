"""The parts of an installation and their states, and how these are added to the output about a pod."""

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from cli.errors import NotInstalledError
from cli.tables import note
from scheduler.api.explanation_types import Explanation

PartState = Literal["working", "broken", "missing", "unknown"]
PartName = Literal["installation", "webhook", "RuntimeClass", "scheduler", "kube-scheduler", "agents"]
REQUIRED_FOR_PLACEMENT: Final[tuple[PartName, ...]] = ("installation", "scheduler", "kube-scheduler")
"""The parts without which no pod is placed. The others affect admission, or single nodes."""
_CONDITIONS: Final[dict[PartName, str]] = {
    "installation": "Tranche is installed",
    "webhook": "the webhook responds",
    "RuntimeClass": "the RuntimeClass exists",
    "scheduler": "a scheduler leads",
    "kube-scheduler": "a kube-scheduler leads",
    "agents": "the agents report",
}


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


def require_installation(liveness: Liveness) -> None:
    """Print a note for each part that the caller has no right to read.

    Raises:
        NotInstalledError: no part of Tranche is installed.
    """
    if not liveness.installed:
        raise NotInstalledError
    for part in liveness.unknown:
        note(f"it is unknown whether {_CONDITIONS[part.name]}: {part.object}: {part.message}")


def qualified(explanation: Explanation, liveness: Liveness, *, is_created: bool) -> Explanation:
    """Return `explanation`; if the pod fits, its answer names the parts that must work first.

    Parts that affect only admission do not affect a pod that `is_created`.
    """
    needed: Collection[Part] = [
        part for part in liveness.problems if part.stops and (part.name in REQUIRED_FOR_PLACEMENT or not is_created)
    ]
    if explanation.outcome != "fits" or not needed:
        return explanation
    conditions = " and ".join(_CONDITIONS[part.name] for part in needed)
    return msgspec.structs.replace(explanation, answer=f"{explanation.answer}, but only once {conditions}")


def with_liveness(liveness: Liveness | None, data: msgspec.Struct) -> dict[str, Any]:
    """Return the content of a structured format: `data`, preceded by the state of the installation if it is known."""
    return {**({} if liveness is None else {"liveness": msgspec.to_builtins(liveness)}), **msgspec.to_builtins(data)}


def liveness_lines(liveness: Liveness | None) -> list[str]:
    """Return the lines that precede the text output."""
    return [] if liveness is None else [*liveness.lines()]
