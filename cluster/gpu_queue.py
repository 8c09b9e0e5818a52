"""The GpuQueue object: who shares the cards, and how."""

from typing import Literal

import msgspec

from allocation.fairness.queue_spec import QueueSpec
from cluster.metadata import ObjectMeta


class QueueMeta(ObjectMeta, rename="camel"):
    """The metadata of a queue."""

    creation_timestamp: str | None = None
    generation: int = 0


class QueueCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition in a queue's status; `last_transition_time` is when its `status` last changed."""

    type: Literal["Active", "Overused", "Valid"]
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str


class GpuQueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a queue has and is entitled to, for people to read.

    Attributes:
        observed_generation: of the spec that this is about.
        namespaces: how many namespaces name it by their label.
        allocated: what its pods hold, by resource in the units of a container.
        running: its pods with a node.
        waiting: its pods without a node.
        share: its dominant share, with four decimals.
        weighted_share: the same divided by its weight.
        entitlement: its weight divided by the weights of all queues with pods.
        dominant_resource: the resource of which it has the largest share; empty without any.
        conditions: `Active`, `Overused` and `Valid`.
    """

    observed_generation: int = 0
    namespaces: int = 0
    allocated: dict[str, int] = {}
    running: int = 0
    waiting: int = 0
    share: str = "0.0000"
    weighted_share: str = "0.0000"
    entitlement: str = "0.0000"
    dominant_resource: str = ""
    conditions: tuple[QueueCondition, ...] = ()


class GpuQueue(msgspec.Struct):
    """A queue. Its status is for people; policy `tranche-queue-deletion` spares queues that are in use by it."""

    metadata: QueueMeta
    spec: QueueSpec = QueueSpec()
    status: GpuQueueStatus = GpuQueueStatus()
