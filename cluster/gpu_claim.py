"""The GpuClaim object: the cards that a pod with annotation `gpu.scheduling/claim` gets."""

from typing import Literal

import msgspec

from allocation.claim import ClaimSpec
from cluster.metadata import ObjectMeta

Phase = Literal["Pending", "Reserved", "Bound", "Failed"]


class ClaimCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition in a claim's status; `last_transition_time` is when its `status` last changed."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str


class GpuClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a claim, for people to read.

    Attributes:
        phase: that of the pod which got least far.
        node_name: the node of the oldest pod that has one.
        gpu_ids: the indexes of its cards on that node.
        allocated: node and indexes of each pod's cards, such as `node-a:0,1;node-b:0,1`.
        message: about the pod which got least far.
        conditions: condition `Allocated`.
    """

    phase: Phase = "Pending"
    node_name: str = ""
    gpu_ids: tuple[int, ...] = ()
    allocated: str = ""
    message: str = ""
    conditions: tuple[ClaimCondition, ...] = ()


class GpuClaim(msgspec.Struct):
    """A claim. Its spec never changes; its status is only for people, and nothing decides by it."""

    metadata: ObjectMeta
    spec: ClaimSpec
    status: GpuClaimStatus = GpuClaimStatus()
