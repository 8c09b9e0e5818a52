"""The cards as the API shows them, and which of them take pods now."""

from typing import Any, NamedTuple

from chaos.share import Ask, Use

_CLOSING = frozenset({"NoSchedule", "NoExecute"})


class Card(NamedTuple):
    """One card: its node, what it has, whether its agent says that it is healthy."""

    node: str
    total: Use
    healthy: bool


class _Beat(NamedTuple):
    renewed: str
    seen_at: float
    seconds: float


class Fleet:
    """Nodes, their cards, and the signs of life of their agents.

    A card once seen stays known with what it had: a pod that was given it holds it wherever its node has gone.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self._shown: dict[str, list[str]] = {}
        self._open: set[str] = set()
        self._beats: dict[str, _Beat] = {}

    def set_status(self, status: dict[str, Any]) -> None:
        """Take a GpuNodeStatus."""
        node, devices = status["metadata"]["name"], status.get("status", {}).get("devices", ())
        self._shown[node] = [device["uuid"] for device in devices]
        for device in devices:
            total = Use(device["memoryMiB"], device.get("cores", 1000), device.get("slots", 10))
            self.cards[device["uuid"]] = Card(node, total, device.get("health", "Healthy") == "Healthy")

    def drop_status(self, status: dict[str, Any]) -> None:
        """Its node reports no cards any more."""
        self._shown.pop(status["metadata"]["name"], None)

    def set_node(self, node: dict[str, Any]) -> None:
        """Take a Node."""
        spec = node.get("spec", {})
        closed = spec.get("unschedulable") or any(taint["effect"] in _CLOSING for taint in spec.get("taints", ()))
        (self._open.discard if closed else self._open.add)(node["metadata"]["name"])

    def drop_node(self, node: dict[str, Any]) -> None:
        """It is gone."""
        self._open.discard(node["metadata"]["name"])

    def set_lease(self, lease: dict[str, Any], *, now: float) -> None:
        """Take the Lease of an agent: valid from when it was seen to change, by our own clock."""
        name, spec = lease["metadata"]["name"], lease.get("spec", {})
        known, renewed = self._beats.get(name), spec.get("renewTime", "")
        if known is None or known.renewed != renewed:
            self._beats[name] = _Beat(renewed, now, spec.get("leaseDurationSeconds", 0))

    def room(self, used: dict[str, Use], *, now: float) -> dict[str, list[tuple[Use, Use]]]:
        """Answer, by node that takes pods, what each healthy card has and what is left of it."""
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
        beat = self._beats.get(f"gpu-{node}")
        return beat is not None and now - beat.seen_at < beat.seconds


def fits(asks: list[Ask], cards: list[tuple[Use, Use]]) -> bool:
    """Whether the cards of one node surely have room: who asks whole cards or all compute wants them idle."""
    left = list(cards)
    for ask in asks:
        takes = [
            (position, free.minus(ask.of(total)))
            for position, (total, free) in enumerate(left)
            if ask.of(total).fits(free) and free.cores > 0 and (ask.cores < total.cores or free == total)
        ]
        if len(takes) < ask.cards:
            return False
        for position, rest in takes[: ask.cards]:
            left[position] = left[position][0], rest
    return True
