"""Nodes whose cards only HAMi's plugin reports: whether it lives, and what of its protocol they need.

Nobody of ours vouches for such a node, so HAMi's own rule does (hami.md 1.1): the plugin lives as long as the kubelet
advertises its devices. Where the kubelet never did, HAMi's scheduler asks by a handshake annotation and waits 60 s. We
write no handshake, because NVIDIA's plugin no longer reads it; the time counts from when we saw the node, by our clock.
A question with a date that cannot be read is as good as an old one, unlike in HAMi.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from allocation import quantity
from allocation.names import HAMI_HANDSHAKE, HAMI_REGISTER
from scheduler.objects import Node

GRACE_SECONDS: Final = 60
_ASKED: Final = "Requesting_"
_DELETED: Final = "Deleted"
_STAMP: Final = "%Y-%m-%d %H:%M:%S"


class _Seen(msgspec.Struct, frozen=True):
    """A node with a register annotation; `advertised` is None where its kubelet never counted a device."""

    advertised: int | None
    handshake: str
    since: float


class PluginNodes:
    """The nodes with HAMi's register annotation, and those of them for which an agent of ours speaks."""

    def __init__(self, *, clock: Callable[[], float], resource: str) -> None:
        """Judge by `clock`, in seconds, which never goes back; plugins count their devices as `resource`."""
        self._clock = clock
        self._resource = resource
        self._seen: dict[str, _Seen] = {}
        self._agents: set[str] = set()
        # Those of which nobody says now that they live: few, and asked about in every decision.
        self._doubted: set[str] = set()
        self._closed: dict[str, str] = {}

    def set_node(self, node: Node) -> None:
        """Take a node's present state."""
        name, annotations = node.metadata.name, node.metadata.annotations
        if HAMI_REGISTER not in annotations:
            self.drop_node(name)
            return
        text = node.status.allocatable.get(self._resource)
        handshake = annotations.get(HAMI_HANDSHAKE, "")
        old = self._seen.get(name)
        did = old is not None and old.advertised is not None
        advertised = quantity.unit_capacity(text) if text is not None else 0 if did else None
        if old is None or (old.advertised, old.handshake) != (advertised, handshake):
            since = old.since if old is not None and advertised is None else self._clock()
            self._seen[name] = _Seen(advertised, handshake, since)
            self._doubt(name)

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self._seen.pop(name, None)
        self._doubt(name)

    def set_agent(self, name: str) -> None:
        """Leave a node to its agent, whose word and heartbeat count from now on."""
        self._agents.add(name)
        self._doubt(name)

    def drop_agent(self, name: str) -> None:
        """Judge a node by its plugin again; an agent that has just gone leaves the time of grace."""
        self._agents.discard(name)
        seen = self._seen.get(name)
        if seen is not None:
            self._seen[name] = msgspec.structs.replace(seen, since=self._clock())
        self._doubt(name)

    def is_hami(self, name: str) -> bool:
        """Whether HAMi's plugin serves a node, which so needs HAMi's handshake to start a pod."""
        seen = self._seen.get(name)
        return seen is not None and name not in self._agents and bool(seen.advertised)

    def close(self, name: str, reason: str) -> None:
        """Keep pods from a node whose plugin we cannot serve."""
        self._closed[name] = reason

    def reopen(self, name: str) -> None:
        """Let pods on a node again."""
        self._closed.pop(name, None)

    def refusals(self) -> dict[str, str]:
        """Answer the nodes whose plugin we cannot serve or that neither plugin nor agent vouches for, and why."""
        now = self._clock()
        deaths = {name: self._death(name, self._seen[name], now) for name in self._doubted}
        return self._closed | {name: reason for name, reason in deaths.items() if reason}

    def _doubt(self, name: str) -> None:
        seen = self._seen.get(name)
        if seen is not None and not seen.advertised and name not in self._agents:
            self._doubted.add(name)
        else:
            self._doubted.discard(name)

    def _death(self, name: str, seen: _Seen, now: float) -> str:
        if seen.advertised is not None:
            return f"HAMi's device plugin of node {name} is gone: its kubelet advertises no {self._resource} any more"
        if seen.handshake.startswith(_DELETED) or not _is_readable(seen.handshake):
            return f"HAMi's device plugin of node {name} is stale: annotation {HAMI_HANDSHAKE} is {seen.handshake!r}"
        if now - seen.since > GRACE_SECONDS:
            return (
                f"nobody vouches for the cards of node {name}: no agent reports them, and its kubelet advertises no"
                f" {self._resource}"
            )
        return ""


def _is_readable(handshake: str) -> bool:
    """Whether a question has a date; what is no question needs none."""
    if not handshake.startswith(_ASKED):
        return True
    try:
        datetime.strptime(handshake.removeprefix(_ASKED), _STAMP)  # noqa: DTZ007 -- it has no zone, so only form counts
    except ValueError:
        return False
    return True
