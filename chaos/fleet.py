"""The nodes and cards as the API shows them, and which of them accept pods now."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from chaos.share import Request, Use

_CLOSING = frozenset({"NoSchedule", "NoExecute"})


class Card(NamedTuple):
    """One card: its node, its capacity, and whether its agent reports it healthy."""

    node: str
    total: Use
    healthy: bool


class _Beat(NamedTuple):
    renewed: str
    seen_at: float
    seconds: float


class Fleet:
    """Nodes, their cards, and the heartbeats of their agents.

    A card once observed is kept with its capacity: a pod that was allocated it holds it even after its node is deleted.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self._shown: dict[str, list[str]] = {}
        self.nodes: set[str] = set()
        self._open: set[str] = set()
        self._beats: dict[str, _Beat] = {}

    def set_status(self, status: dict[str, Any]) -> None:
        """Record a GpuNodeStatus."""
        node, devices = status["metadata"]["name"], status.get("status", {}).get("devices", ())
        self._shown[node] = [device["uuid"] for device in devices]
        for device in devices:
            total = Use(device["memoryMiB"], device.get("cores", 1000), device.get("slots", 10))
            self.cards[device["uuid"]] = Card(node, total, device.get("health", "Healthy") == "Healthy")

    def drop_status(self, status: dict[str, Any]) -> None:
        """Record that a GpuNodeStatus was deleted: its node reports no cards any more."""
        self._shown.pop(status["metadata"]["name"], None)

    def set_node(self, node: dict[str, Any]) -> None:
        """Record a Node."""
        spec = node.get("spec", {})
        closed = spec.get("unschedulable") or any(taint["effect"] in _CLOSING for taint in spec.get("taints", ()))
        self.nodes.add(node["metadata"]["name"])
        (self._open.discard if closed else self._open.add)(node["metadata"]["name"])

    def drop_node(self, node: dict[str, Any]) -> None:
        """Record that a Node was deleted."""
        self.nodes.discard(node["metadata"]["name"])
        self._open.discard(node["metadata"]["name"])

    def set_lease(self, lease: dict[str, Any], *, now: float) -> None:
        """Record an agent's Lease. It is valid from the moment the renewal was observed, by the checker's clock."""
        name, spec = lease["metadata"]["name"], lease.get("spec", {})
        last, renewed = self._beats.get(name), spec.get("renewTime", "")
        if last is None or last.renewed != renewed:
            self._beats[name] = _Beat(renewed, now, spec.get("leaseDurationSeconds", 0))

    def free(self, used: dict[str, Use], *, now: float) -> dict[str, list[tuple[Use, Use]]]:
        """Return capacity and free resources of each healthy card, by node, for the nodes that accept pods."""
        return {
            node: [
                (card.total, card.total.minus(used.get(uuid, Use())))
                for uuid in uuids
                if (card := self.cards[uuid]).healthy
            ]
            for node, uuids in self._shown.items()
            if node in self._open and self._is_alive(node, now)
        }

    def _is_alive(self, node: str, now: float) -> bool:
        beat = self._beats.get(f"agent-{node}")
        return beat is not None and now - beat.seen_at < beat.seconds


def fits(requests: Sequence[Request], cards: list[tuple[Use, Use]]) -> bool:
    """Return whether the cards of one node certainly fit the requests. A request for all compute needs idle cards."""
    left = list(cards)
    for request in requests:
        candidates = [
            (position, free.minus(request.on(total)))
            for position, (total, free) in enumerate(left)
            if request.on(total).fits(free) and free.cores > 0 and (request.cores < total.cores or free == total)
        ]
        if len(candidates) < request.cards:
            return False
        for position, rest in candidates[: request.cards]:
            left[position] = left[position][0], rest
    return True
