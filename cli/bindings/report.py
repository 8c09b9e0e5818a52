"""The output of `kubectl gpu bindings`: the bindings with their cards and pods, and their problems."""

from typing import Literal

import msgspec

from allocation.bindings.binding import ShareMode
from allocation.settings import BindingsMode

ProblemType = Literal[
    "NotApplied",
    "UnknownCard",
    "InvalidMemory",
    "NoSelector",
    "ExclusiveCardShared",
    "MemoryExceeded",
    "Duplicate",
    "NoNamespace",
]
"""The most severe first."""


class KnownCard(msgspec.Struct, frozen=True):
    """A card that a node reports.

    Attributes:
        node: the name of the node.
        memory_mib: the memory of the card in MiB.
        mode: how pods share it; None if the annotations of the node may not be read.
    """

    node: str
    memory_mib: int
    mode: ShareMode | None = "time-slicing"


class Problem(msgspec.Struct, frozen=True):
    """What an administrator must know about bindings.

    Attributes:
        type: a word for scripts.
        bindings: the names of the bindings; empty if it concerns all of them.
        message: the problem and the next step, without the names.
    """

    type: ProblemType
    bindings: tuple[str, ...]
    message: str


class CardBinding(
    msgspec.Struct, frozen=True, rename={"app": "appName", "memory_mib": "memoryMiB", "share_mode": "shareMode"}
):
    """One binding.

    Attributes:
        name: the name of the GPUBinding.
        created: its creationTimestamp.
        card: the UUID of the card.
        node: the node that reports the card; empty if none does.
        app: the application.
        owner: its user; empty for every user.
        namespace: of its pods; empty for every namespace.
        memory: as written; empty if the binding sets none.
        memory_mib: the same in MiB; None if it sets none, or one that cannot be read.
        share_mode: how pods share the card; None if that is unknown.
        pods: the live pods of the application that have the card, `namespace/name`.
    """

    name: str
    created: str
    card: str
    node: str
    app: str
    owner: str
    namespace: str
    memory: str
    memory_mib: int | None
    share_mode: ShareMode | None
    pods: tuple[str, ...]


class BindingsReport(msgspec.Struct, frozen=True):
    """The output with `-o json`.

    Attributes:
        mode: the setting `allocation.bindings.mode`.
        bindings: sorted by application, owner, namespace, card and name.
        problems: the most severe first.
    """

    mode: BindingsMode
    bindings: tuple[CardBinding, ...]
    problems: tuple[Problem, ...]

    def concerning(self, *, app: str, owner: str, namespace: str) -> "BindingsReport":
        """Return the bindings that count for such pods, with their problems; an empty text selects all."""
        bindings = tuple(
            each
            for each in self.bindings
            if app in ("", each.app)
            and (not owner or each.owner in ("", owner))
            and (not namespace or each.namespace in ("", namespace))
        )
        names = {each.name for each in bindings}
        problems = (each for each in self.problems if not each.bindings or names.intersection(each.bindings))
        return BindingsReport(self.mode, bindings, tuple(problems))
