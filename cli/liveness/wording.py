"""Add the state of an installation to the output about a pod."""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from cli.errors import NotInstalledError
from cli.liveness.part import REQUIRED_FOR_PLACEMENT, Liveness, Part, PartName
from cli.tables import note
from scheduler.api.explanation_types import Explanation

_CONDITIONS: Final[dict[PartName, str]] = {
    "installation": "Tranche is installed",
    "webhook": "the webhook responds",
    "RuntimeClass": "the RuntimeClass exists",
    "scheduler": "a scheduler leads",
    "kube-scheduler": "a kube-scheduler leads",
    "agents": "the agents report",
}


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
