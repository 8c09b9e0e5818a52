"""The queues, and the queue of one pod, as the HTTP API returns them and the command line shows them."""

from typing import Literal

import msgspec

from allocation.fairness.reclaim import Reclaim
from scheduler.api.json_names import json_name


class QueueView(msgspec.Struct, frozen=True, rename=json_name):
    """One queue: a GpuQueue, or the own queue of a namespace whose pods name none.

    Attributes:
        name: the name of the GpuQueue, or `namespace/NAME`; as annotation `gpu.scheduling/charged-to` has it.
        exists: whether there is such a GpuQueue; true for the own queue of a namespace.
        weight: its share of the cards while others wait, relative to theirs.
        priority: its tier.
        suspended: whether new pods wait.
        limits: the most that its pods may hold, by resource in the units of a container; a missing one is unlimited.
        max_instances: the most pods of it that may run; None is unlimited.
        reclaim: from which queues it takes back what it is owed: `Never`, `WithinTier` or `Always`.
        allocated: what its pods hold, by resource in the units of a container; CPU in thousandths, memory in bytes.
        share: its dominant share, 0 to 1; None is infinite: it holds a resource that no usable card has any more.
        dominant_resource: the resource of which it has the largest share; empty if it holds nothing.
        weighted_share: the share divided by the weight, by which queues of one tier are ordered; None is infinite.
        entitlement: its weight divided by the weights of all queues with pods; for a queue without pods, what it would
            be with some.
        overused: whether it has more than its entitlement.
        underused: whether it has less than its entitlement, and pods that wait.
        excess_cards: how many cards' worth of its dominant resource it has more than its entitlement, or, below 0, is
            owed, because it has less and pods that wait; None is infinite.
        running: its pods with a node.
        waiting: its pods without a node.
        next: the first of its waiting pods, `namespace/name`, in the order in which a free card is offered to them;
            without those that only a change of the pod helps.
        redacted: whether the user may not see what the queue has, because no pod of the user's namespace belongs to it:
            `allocated` and all that follows is then empty or 0.
    """

    name: str
    exists: bool
    weight: int
    priority: int
    suspended: bool
    limits: dict[str, int]
    max_instances: int | None
    reclaim: Reclaim
    allocated: dict[str, int]
    share: float | None
    dominant_resource: str
    weighted_share: float | None
    entitlement: float
    overused: bool
    underused: bool
    excess_cards: float | None
    running: int
    waiting: int
    next: tuple[str, ...]
    redacted: bool = False


class QueuesView(msgspec.Struct, frozen=True, rename=json_name):
    """The queues.

    Attributes:
        fair_sharing: whether there is a GpuQueue, so that free cards are offered by tier, priority and share. Otherwise
            the order is priority, then age, whatever the queues have.
        queues: each GpuQueue, and each namespace's own queue with pods, in the order in which a free card is offered to
            them if their first pods have the same priority.
    """

    fair_sharing: bool
    queues: tuple[QueueView, ...]


class QueueAhead(msgspec.Struct, frozen=True, rename=json_name):
    """The queue of the pod that comes before another one.

    Attributes:
        name: as in `QueueView`.
        by: why it comes before: its `tier` is higher, the `priority` of its pod is, its `share` divided by its weight
            is smaller, or with equal shares its pod is older (`age`).
        weight: the weight of the queue.
        priority: its tier.
        share: its dominant share; None is infinite.
        dominant_resource: of which resource that is.
    """

    name: str
    by: Literal["tier", "priority", "share", "age"]
    weight: int
    priority: int
    share: float | None
    dominant_resource: str


class PodQueue(msgspec.Struct, frozen=True, rename=json_name):
    """The queue of a pod, and the pod's rank.

    Attributes:
        name: the queue that is charged, or would be; as in `QueueView`.
        weight: the weight of the queue.
        priority: its tier.
        share: its dominant share; None is infinite.
        dominant_resource: of which resource that is.
        entitlement: the share to which it is entitled.
        rank: the position of the pod, from 1, among the waiting pods whose queues take pods now; 0 if the pod has a
            node, does not exist, only a change of it helps, or its queue takes no pod.
        waiting: the number of these pods.
        ahead: the queue of the closest pod before it that belongs to another queue; None without such a pod, and for
            users who have rights in one namespace only.
        waits_for: the GpuQueue of a higher tier whose pods come first, whatever fits; empty without one.
        is_behind_first: whether an older pod of the queue has to be placed first, because its `queueingStrategy` is
            StrictFIFO.
    """

    name: str
    weight: int
    priority: int
    share: float | None
    dominant_resource: str
    entitlement: float
    rank: int = 0
    waiting: int = 0
    ahead: QueueAhead | None = None
    waits_for: str = ""
    is_behind_first: bool = False
