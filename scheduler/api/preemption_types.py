"""What preemption would do for a pod that waits, as `explain` and `simulate` show it."""

from typing import Literal

import msgspec

from scheduler.api.json_names import json_name


class PreemptedPod(msgspec.Struct, frozen=True, rename=json_name):
    """A pod that would be evicted."""

    namespace: str
    name: str
    priority: int


class PreemptionExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """What preemption would do for a pod that waits, or why it would do nothing.

    Attributes:
        node: where the pod would fit then; empty if no pod is preempted.
        count: the pods that would be evicted; 0 if enough pods of the node are being deleted already.
        victims: these pods; for users who have rights in one namespace only those of this namespace.
        leaving: the pods of the node that are being deleted already; while cards are held, those that have to end.
        gang_pods: while cards are held for its gang, for how many pods of it; `leaving` is what all of these wait for.
        held: why cards of the node are held for the pod now: `preemption`, others are being evicted for it,
            `consolidation`, others are being moved for it, or it is moved itself, or `patience`, it has waited
            for long; empty if none are held.
        why: why no pod is preempted; empty if one is, or cards are held.
        reclaim: whether the pod may reclaim cards from queues that have more than their entitlement, or from when on,
            or why not; empty if its queue never reclaims, or cards are held.
        reclaimed: how many of the pods would be evicted because of that.
    """

    node: str = ""
    count: int = 0
    victims: tuple[PreemptedPod, ...] = ()
    leaving: int = 0
    gang_pods: int = 0
    held: Literal["", "preemption", "patience", "consolidation"] = ""
    why: str = ""
    reclaim: str = ""
    reclaimed: int = 0
