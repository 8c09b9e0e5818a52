"""A code for each reason why a node as a whole does not take a pod; a card's own are `allocation.reasons.CardReason`.

The texts are kube-scheduler's words, or name the node, the pod and the field; a code is the same for all of a kind, so
that it can be counted and looked up (docs/troubleshooting.md).
"""

import enum
import functools
import re
from collections.abc import Iterable, Mapping
from typing import Final

from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason
from allocation.rejection import Rejection


class NodeReason(enum.StrEnum):
    """The codes."""

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name

    NodeInsufficientDevice = NODE_INSUFFICIENT_DEVICE
    """The node has fewer cards than one container asks for."""
    NodeUnregistered = NODE_UNREGISTERED
    """No agent reports cards for the node."""
    NodeNameMismatch = enum.auto()
    NodeUnschedulable = enum.auto()
    NodeTainted = enum.auto()
    NodeSelectorMismatch = enum.auto()
    NodeInsufficientResource = enum.auto()
    """CPU, memory, ephemeral storage, or an extended resource that is not ours."""
    NodeTooManyPods = enum.auto()
    NodePortTaken = enum.auto()
    PodAffinityMismatch = enum.auto()
    PodAntiAffinityMismatch = enum.auto()
    TopologySpreadMismatch = enum.auto()
    AgentSilent = enum.auto()
    """The heartbeat of the node's agent is over."""
    DevicePluginGone = enum.auto()
    """HAMi's device plugin does not live any more, and no agent of ours speaks for the node."""
    DevicePluginFull = enum.auto()
    """The node's device plugin advertises too few devices."""
    NodeNotLockable = enum.auto()
    """We may not lock a node that HAMi's device plugin serves."""
    UncountedPod = enum.auto()
    """A pod runs there on cards of which nobody knows which they are."""
    InventoryRefused = enum.auto()
    """What is said of the node's cards cannot be, or contradicts another node."""
    StaticAllocationMismatch = enum.auto()
    """A pod brought its allocation, and it is for another node, or this one cannot give it."""
    Other = enum.auto()
    """A text that this list does not know."""


CLOSING: Final = (
    NodeReason.AgentSilent,
    NodeReason.DevicePluginGone,
    NodeReason.NodeNotLockable,
    NodeReason.UncountedPod,
    NodeReason.InventoryRefused,
)
"""Those with which a node takes no GPU pod at all."""
_TEXTS: Final = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"NodeInsufficientDevice$", NodeReason.NodeInsufficientDevice),
        (r"NodeUnregistered$", NodeReason.NodeUnregistered),
        (r"node didn't match the requested node name", NodeReason.NodeNameMismatch),
        (r"node was unschedulable", NodeReason.NodeUnschedulable),
        (r"node had untolerated taint", NodeReason.NodeTainted),
        (r"node didn't match Pod's node affinity/selector", NodeReason.NodeSelectorMismatch),
        (r"Insufficient \S+: the node's device plugin", NodeReason.DevicePluginFull),
        (r"Insufficient ", NodeReason.NodeInsufficientResource),
        (r"Too many pods", NodeReason.NodeTooManyPods),
        (r"node didn't have free ports", NodeReason.NodePortTaken),
        (r"node didn't match pod affinity", NodeReason.PodAffinityMismatch),
        (r"node didn't match pod anti-affinity|node didn't satisfy existing", NodeReason.PodAntiAffinityMismatch),
        (r"node didn't match pod topology spread", NodeReason.TopologySpreadMismatch),
        (r"agent of node \S+ is silent", NodeReason.AgentSilent),
        (r"HAMi's device plugin of node|nobody vouches for the cards", NodeReason.DevicePluginGone),
        (r"node \S+ cannot be locked", NodeReason.NodeNotLockable),
        (r"pod \S+ runs here uncounted", NodeReason.UncountedPod),
        (r"static allocation ", NodeReason.StaticAllocationMismatch),
        (r"node \S+ reports|node \S+, annotation|register annotation", NodeReason.InventoryRefused),
    )
)


@functools.lru_cache(4096)
def of_text(text: str) -> NodeReason:
    """Answer the code of what a node is refused with."""
    return next((reason for pattern, reason in _TEXTS if pattern.match(text)), NodeReason.Other)


def codes(rejections: Iterable[Rejection], refusals: Mapping[str, str]) -> frozenset[str]:
    """Answer every code that keeps a pod waiting, of cards and of nodes."""
    cards: set[CardReason] = set()
    texts = set(refusals.values())
    for rejection in rejections:
        if rejection.node_reason:
            texts.add(rejection.node_reason)
        else:
            cards.update(rejection.counts)
    return frozenset({*(card.name for card in cards), *(of_text(text).value for text in texts)})
