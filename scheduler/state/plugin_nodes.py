"""Nodes whose cards only HAMi's device plugin reports: whether it is alive, and whether pods need HAMi's protocol.

Such a node has no agent, so HAMi's own rule applies (docs/hami.md): the plugin is alive as long as the kubelet
advertises its devices. Where the kubelet never did, HAMi's scheduler asks by a handshake annotation and waits 60 s.
This scheduler writes no handshake, because NVIDIA's plugin no longer reads it; the 60 s begin when it first sees the
node, by its own clock. Unlike in HAMi, a handshake with an unreadable date counts as expired.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from allocation import quantity
from allocation.names import HAMI_HANDSHAKE, HAMI_REGISTER
from allocation.reasons import NodeReason, NodeRejection
from allocation.request import PodRequest
from scheduler.filters.node_rejections import NodeRejections
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Node

GRACE_SECONDS: Final = 60
_ASKED: Final = "Requesting_"
_DELETED: Final = "Deleted"
_STAMP: Final = "%Y-%m-%d %H:%M:%S"


class _Seen(msgspec.Struct, frozen=True):
    """A node with a register annotation; `advertised` is None if its kubelet never advertised a device."""

    advertised: int | None
    handshake: str
    since: float

    @property
    def grace_ends(self) -> float:
        """The time after which a plugin that has never advertised a device counts as gone."""
        return self.since + GRACE_SECONDS


class PluginNodes:
    """The nodes with HAMi's register annotation, and those of them that have an agent.

    Attributes:
        rejections: the rejections by the nodes that cannot be locked, and by those whose plugin is gone or stale.
        due: when the first grace period ends of a plugin that has not reported yet.
    """

    def __init__(self, *, clock: Callable[[], float], resource: str) -> None:
        """Measure time by the monotonic `clock`, in seconds; plugins advertise their devices as `resource`."""
        self._clock = clock
        self._resource = resource
        self._seen: dict[str, _Seen] = {}
        self._agents: set[str] = set()
        self._suspects: set[str] = set()
        """The nodes without a sign of a live plugin."""
        self._not_lockable: dict[str, NodeRejection] = {}
        self.rejections = NodeRejections()
        self.due = math.inf

    def set_node(self, node: Node) -> None:
        """Set the state of a node."""
        name, annotations = node.metadata.name, node.metadata.annotations
        if HAMI_REGISTER not in annotations:
            self.drop_node(name)
            return
        text = node.status.allocatable.get(self._resource)
        handshake = annotations.get(HAMI_HANDSHAKE, "")
        old = self._seen.get(name)
        has_advertised = old is not None and old.advertised is not None
        advertised = quantity.unit_capacity(text) if text is not None else 0 if has_advertised else None
        if old is None or (old.advertised, old.handshake) != (advertised, handshake):
            since = old.since if old is not None and advertised is None else self._clock()
            self._seen[name] = _Seen(advertised, handshake, since)
            self._update(name)

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self._seen.pop(name, None)
        self._update(name)

    def set_agent(self, name: str) -> None:
        """Note that a node has an agent, whose report and Lease count from now on."""
        self._agents.add(name)
        self._update(name)

    def drop_agent(self, name: str) -> None:
        """Note that a node has no agent any more; its plugin has the grace period to report."""
        self._agents.discard(name)
        seen = self._seen.get(name)
        if seen is not None:
            self._seen[name] = msgspec.structs.replace(seen, since=self._clock())
        self._update(name)

    def is_hami(self, name: str) -> bool:
        """Whether HAMi's plugin serves a node, so that starting a pod there needs HAMi's handshake."""
        seen = self._seen.get(name)
        return seen is not None and name not in self._agents and bool(seen.advertised)

    def rejections_of(self, requirements: GpuRequirements) -> dict[str, NodeRejection]:
        """Return the rejections of a pod by nodes that HAMi's plugin serves.

        It limits each container by itself, so several containers could each use all that their claim charges once. And
        it starts one pod after another, so the pods of a gang could not be bound together.
        """
        rejection = _ONE_BY_ONE if requirements.is_gathering else _DIVIDED if requirements.is_divided else None
        return {name: rejection for name in self._seen if self.is_hami(name)} if rejection is not None else {}

    def rejections_of_count(self, name: str, request: PodRequest, count: int) -> dict[str, NodeRejection]:
        """Return the rejection by a node whose plugin serves it, of a pod that is to get `count` cards there.

        The kubelet gives the pod as many devices as it requests.
        """
        requested = sum(container.count for container in request.containers)
        if not self.is_hami(name) or requested == count:
            return {}
        message = f"HAMi's device plugin gives the pod as many cards as it requests: {requested}, and {count} are bound"
        return {name: NodeRejection(NodeReason.BoundCountMismatch, message, resolvable=False)}

    def close(self, name: str, message: str) -> None:
        """Reject pods on a node whose lock for the plugin cannot be taken."""
        self._not_lockable[name] = NodeRejection(NodeReason.NodeNotLockable, message, resolvable=False)
        self._reject(name, self._clock())

    def reopen(self, name: str) -> None:
        """Accept pods on a node again."""
        self._not_lockable.pop(name, None)
        self._reject(name, self._clock())

    def refresh(self, now: float) -> None:
        """Reject the nodes whose grace period has ended."""
        self.due = math.inf
        for name in self._suspects:
            self._reject(name, now)

    def _update(self, name: str) -> None:
        seen = self._seen.get(name)
        if seen is not None and not seen.advertised and name not in self._agents:
            self._suspects.add(name)
        else:
            self._suspects.discard(name)
        self._reject(name, self._clock())

    def _reject(self, name: str, now: float) -> None:
        """Reject pods on a node, or accept them, by what is known at `now`."""
        rejection = self._not_lockable.get(name)
        if name in self._suspects:
            seen = self._seen[name]
            message = self._gone(name, seen, now)
            if message:
                rejection = NodeRejection(NodeReason.DevicePluginGone, message, resolvable=False)
            else:
                self.due = min(self.due, seen.grace_ends)
        self.rejections.set(name, rejection)

    def _gone(self, name: str, seen: _Seen, now: float) -> str:
        if seen.advertised is not None:
            return f"HAMi's device plugin of node {name} is gone: its kubelet advertises no {self._resource} any more"
        if seen.handshake.startswith(_DELETED) or not _is_readable(seen.handshake):
            return f"HAMi's device plugin of node {name} is stale: annotation {HAMI_HANDSHAKE} is {seen.handshake!r}"
        if now > seen.grace_ends:
            return f"no agent reports the cards of node {name}, and its kubelet advertises no {self._resource}"
        return ""


_ONE_BY_ONE = NodeRejection(
    NodeReason.GangNotStartable,
    "HAMi's device plugin starts one pod after another, and the pods of a gang are bound together",
    resolvable=False,
)
_DIVIDED = NodeRejection(
    NodeReason.SharedClaimNotLimitable,
    "HAMi's device plugin limits each container by itself, and several containers of the pod share its GpuClaim",
    resolvable=False,
)


def _is_readable(handshake: str) -> bool:
    """Whether a handshake that is a request has a readable date; others need no date."""
    if not handshake.startswith(_ASKED):
        return True
    try:
        datetime.strptime(handshake.removeprefix(_ASKED), _STAMP)  # noqa: DTZ007 -- it has no zone; only the form counts
    except ValueError:
        return False
    return True
