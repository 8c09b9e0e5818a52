"""Compares reservations with what the agents measure: which pods use their share of a card, and which do not.

A share is *idle* if no kernel of its pod has run on the card for `idle_seconds`, *active* if one has, and *unknown* if
the agent cannot tell or has not been read for a while. Of a pod without processes on the card the time counts from when
this process first read it; while a share is unknown, it begins again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

import msgspec

from allocation.ledger.ledger import Ledger
from cluster.measurement import ContainerMeasurement, DeviceMeasurement, NodeMeasurement

Use = Literal["active", "idle", "unknown"]
USES: Final[tuple[Use, ...]] = get_args(Use)
_STALE_INTERVALS: Final = 3.0
_STALE_SECONDS: Final = 60.0
"""A measurement that is older than these intervals of readings, plus these seconds, does not count any more."""
NOT_READ: Final = "the scheduler has not read the agent of the node"
NOT_READ_SINCE: Final = "the scheduler has not read the agent of the node since the pod was placed there"


class ShareUse(msgspec.Struct, frozen=True):
    """What one pod uses of one card.

    Attributes:
        use: whether it is active.
        inactive_seconds: for how long no kernel of it has run; None if unknown.
        containers: its containers with processes on the card; a container without an entry uses nothing, unless
            `problem` says why that is unknown.
        problem: why what it uses is unknown, or empty.
    """

    use: Use
    inactive_seconds: float | None = None
    containers: tuple[ContainerMeasurement, ...] = ()
    problem: str = ""


class _Node(msgspec.Struct, frozen=True):
    """What was read of a node.

    Attributes:
        measured_at: when the agent measured, by this process's clock.
        containers: by pod and card; only of pods that hold the card.
        held: the pods that held cards then, each with its card.
        active_at: when a kernel of the pod last ran, or when the share was first seen, by pod and card.
        counts: the shares of the node by use, when it was read.
        idle_cards: the cards that its idle shares hold.
    """

    measured_at: float
    problem: str
    devices: Mapping[str, DeviceMeasurement]
    containers: Mapping[tuple[str, str], tuple[ContainerMeasurement, ...]]
    held: frozenset[tuple[str, str]]
    active_at: Mapping[tuple[str, str], float]
    counts: Counter[Use]
    idle_cards: float


class UseOfShares:
    """What is known of each node."""

    def __init__(self, ledger: Ledger, *, read_seconds: float, idle_seconds: float, clock: Callable[[], float]) -> None:
        """Follow the reservations of `ledger`, of whose nodes each is read every `read_seconds`."""
        self._ledger = ledger
        self._stale_seconds = _STALE_INTERVALS * read_seconds + _STALE_SECONDS
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._nodes: dict[str, _Node] = {}

    # ---- reading ---------------------------------------------------------------------------------------------------

    def record(self, node: str, measurement: NodeMeasurement) -> None:
        """Keep what an agent has measured, as far as it is about pods that hold cards of the node."""
        now, before = self._clock(), self._nodes.get(node)
        held = {
            (reservation.uid, charge.uuid): charge
            for reservation in self._ledger.reservations(node)
            if reservation.is_pod
            for charge in reservation.charges
        }
        inventory = self._ledger.inventory(node)
        cards = {card.uuid: card for card in inventory.cards} if inventory is not None else {}
        containers: defaultdict[tuple[str, str], tuple[ContainerMeasurement, ...]] = defaultdict(tuple)
        for each in measurement.containers:
            if (each.uid, each.device) in held:
                containers[each.uid, each.device] += (each,)
        known = _Node(
            measured_at=now - measurement.age_seconds,
            problem=measurement.problem,
            devices={device.uuid: device for device in measurement.devices if device.uuid in cards},
            containers=containers,
            held=frozenset(held),
            active_at={},
            counts=Counter(),
            idle_cards=0.0,
        )
        active_at, counts, idle_cards = {}, Counter[Use](), 0.0
        for key, charge in held.items():
            since = _active_at(known, key, before.active_at.get(key) if before is not None else None)
            if since is not None:
                active_at[key] = since
            use = self._use(since, now)
            counts[use] += 1
            if use == "idle" and charge.uuid in cards:
                idle_cards += charge.part_of(cards[charge.uuid])
        self._nodes[node] = msgspec.structs.replace(known, active_at=active_at, counts=counts, idle_cards=idle_cards)

    def fail(self, node: str, problem: str) -> None:
        """Note that a node could not be read: what was read before counts until it is too old."""
        known = self._nodes.get(node)
        if known is None or self._is_stale(known):
            self.record(node, NodeMeasurement(node, problem=problem))

    def forget_nodes(self) -> None:
        """Forget the nodes that the ledger does not have any more."""
        for node in self._nodes.keys() - set(self._ledger.nodes):
            del self._nodes[node]

    # ---- views -----------------------------------------------------------------------------------------------------

    def of(self, node: str, uid: str, device: str) -> ShareUse:
        """Return what a pod uses of a card of a node."""
        known, key = self._nodes.get(node), (uid, device)
        problem = self.problem(node, device)
        if known is None or problem:
            return ShareUse("unknown", problem=problem)
        if key not in known.held:
            return ShareUse("unknown", problem=NOT_READ_SINCE)
        since, now = known.active_at.get(key), self._clock()
        inactive = None if since is None else max(0.0, round(now - since, 1))
        return ShareUse(self._use(since, now), inactive, known.containers.get(key, ()))

    def problem(self, node: str, device: str) -> str:
        """Return why it is unknown what the containers use of a card; empty if it is known."""
        known = self._nodes.get(node)
        if known is None:
            return NOT_READ
        if known.problem:
            return known.problem
        if self._is_stale(known):
            return f"the last measurement of the node is {self._clock() - known.measured_at:.0f} s old"
        found = known.devices.get(device)
        return found.problem if found is not None else "the agent of the node did not measure this card"

    def device(self, node: str, uuid: str) -> DeviceMeasurement | None:
        """Return what all processes together use of a card, or None if that was not measured lately."""
        known = self._nodes.get(node)
        if known is None or self._is_stale(known):
            return None
        return known.devices.get(uuid)

    def counts(self) -> Counter[Use]:
        """Return the shares by use: each pod counts once for each of its cards."""
        return sum((known.counts for known in self._nodes.values()), Counter[Use]())

    @property
    def idle_cards(self) -> float:
        """The cards that idle shares hold: of each share the larger of its parts of the memory and the compute."""
        return sum(known.idle_cards for known in self._nodes.values())

    def _is_stale(self, known: _Node) -> bool:
        return self._clock() - known.measured_at > self._stale_seconds

    def _use(self, active_at: float | None, now: float) -> Use:
        if active_at is None:
            return "unknown"
        return "idle" if now - active_at >= self._idle_seconds else "active"


def _active_at(known: _Node, key: tuple[str, str], before: float | None) -> float | None:
    """Return when a kernel of a pod last ran on a card, at the earliest `before`; None if that is unknown.

    The agent knows since when each container with processes has been inactive, also before this leader's term.
    """
    device = known.devices.get(key[1])
    if known.problem or device is None or device.problem:
        return None
    seen = [] if before is None else [before]
    for each in known.containers.get(key, ()):
        if each.inactive_seconds is None:
            return None
        seen.append(known.measured_at - each.inactive_seconds)
    return max(seen, default=known.measured_at)
