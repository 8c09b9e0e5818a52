"""Which pods would be moved for one that waits, as `explain`, `simulate` and `kubectl gpu consolidate` show it."""

from typing import Literal

import msgspec

from scheduler.api.json_names import json_name

Phase = Literal["moving", "ended"]


class PlannedMove(msgspec.Struct, frozen=True, rename=json_name):
    """A pod that is moved.

    Attributes:
        namespace: of the pod.
        name: of the pod; its controller may give the one that takes its place another name.
        to: the node on which there is room for it.
        memory_mib: the card memory that it holds.
    """

    namespace: str
    name: str
    to: str
    memory_mib: int


class ConsolidationExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """The moves after which a pending pod fits, or why no pod is moved.

    Attributes:
        node: where the pod fits then, and where the pods run that are moved; empty if none are.
        count: the number of moves.
        moves: the moves, in order; for users who have rights in one namespace only those of pods of this namespace.
        why: why no pod is moved; empty if any is.
    """

    node: str = ""
    count: int = 0
    moves: tuple[PlannedMove, ...] = ()
    why: str = ""


class ConsolidationProgress(msgspec.Struct, frozen=True, rename=json_name):
    """How far the moves for a pod are.

    Attributes:
        phase: whether pods are still being moved.
        done: how many have a node again.
        total: how many are moved.
        outcome: how it ended: `placed`, `gone`, `refused`, `not_back` or `late`; empty before that.
        why: why it ended without success.
    """

    phase: Phase
    done: int = 0
    total: int = 0
    outcome: str = ""
    why: str = ""


def within(explained: ConsolidationExplanation, namespace: str) -> ConsolidationExplanation:
    """Return the same without the names of pods of other namespaces."""
    own = tuple(each for each in explained.moves if each.namespace == namespace)
    return msgspec.structs.replace(explained, moves=own)
