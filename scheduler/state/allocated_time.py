"""How long pods have held how much of cards, by namespace and queue: what is charged back.

A pod counts from the decision that reserves its cards until they are released, with the larger of its parts of the
memory and the compute of each card (`Charge.part_of`), whether it uses them or not. The sums begin with the leader's
term; Prometheus keeps what earlier leaders counted.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.inventory import Card
from allocation.ledger.ledger import Ledger
from scheduler.state.participants import Placed

MOST: Final = 2000
"""The most owners that are counted separately; the pods of further ones are counted together."""
_KEPT_SECONDS: Final = 3600.0
"""For how long the sum of an owner without pods is kept, so that Prometheus reads its last value."""
_UNIT: Final = 1_000_000
"""Parts of cards are counted in millionths, so that sums of many are exact."""


class Owner(msgspec.Struct, frozen=True):
    """What time is counted for: a namespace, and the GpuQueue that its pod is charged to; empty for its own queue."""

    namespace: str = ""
    queue: str = ""


class _Sum(msgspec.Struct):
    """The cards that an owner holds since a time, in millionths, and the card-seconds before that."""

    held: int
    since: float
    card_seconds: float = 0.0


class _Counted(msgspec.Struct, frozen=True):
    """What a pod is counted with."""

    owner: Owner
    parts: int


class AllocatedTime:
    """The sums of all owners; a participant of the state."""

    def __init__(
        self, ledger: Ledger, *, queue_of: Callable[[str], QueueKey | None], clock: Callable[[], float]
    ) -> None:
        """Count parts of the cards of `ledger`; `queue_of` returns the queue that the pod of a UID is charged to."""
        self._ledger = ledger
        self._queue_of = queue_of
        self._clock = clock
        self._since = clock()
        self._sums: dict[Owner, _Sum] = {}
        self._pods: dict[str, _Counted] = {}

    def __iter__(self) -> Iterator[tuple[Owner, float]]:
        """Iterate over the owners and their card-seconds until now; forget those without pods for an hour."""
        now = self._clock()
        for owner, each in tuple(self._sums.items()):
            if each.held or now - each.since < _KEPT_SECONDS:
                yield owner, each.card_seconds + each.held / _UNIT * (now - each.since)
            else:
                del self._sums[owner]

    @property
    def seconds(self) -> float:
        """For how long time has been counted."""
        return self._clock() - self._since

    @property
    def held(self) -> dict[Owner, float]:
        """The cards, in parts of them, that the pods of each owner hold now."""
        return {owner: each.held / _UNIT for owner, each in self._sums.items() if each.held}

    # ---- participant -----------------------------------------------------------------------------------------------

    def reserve(self, placed: Placed) -> None:
        """Count the cards of a pod from now on (`scheduler.state.participants.Participant`)."""
        uid, queue = placed.pod.uid, self._queue_of(placed.pod.uid)
        if placed.allocation is None:
            self.unreserve(uid)
            return
        owner = Owner(placed.pod.metadata.namespace, queue.name if queue is not None else "")
        self._count(uid, self._known(owner), self._parts(placed.charges) or 0)

    def unreserve(self, uid: str) -> None:
        """Count the cards of a pod no more."""
        counted = self._pods.pop(uid, None)
        if counted is not None:
            self._add(counted.owner, -counted.parts)

    def recount_node(self, node: str) -> None:
        """Count the pods of a node again, whose cards have changed. A pod whose cards are gone counts as before."""
        for reservation in self._ledger.reservations(node):
            counted, parts = self._pods.get(reservation.uid), self._parts(reservation.charges)
            if counted is not None and parts is not None:
                self._count(reservation.uid, counted.owner, parts)

    # ---- sums ------------------------------------------------------------------------------------------------------

    def _count(self, uid: str, owner: Owner, parts: int) -> None:
        counted = _Counted(owner, parts)
        if self._pods.get(uid) != counted:
            self.unreserve(uid)
            self._add(owner, parts)
            self._pods[uid] = counted

    def _add(self, owner: Owner, parts: int) -> None:
        now = self._clock()
        known = self._sums.setdefault(owner, _Sum(0, now))
        known.card_seconds += known.held / _UNIT * (now - known.since)
        known.held += parts
        known.since = now

    def _known(self, owner: Owner) -> Owner:
        """Return the owner, or that of all further ones."""
        return owner if owner in self._sums or len(self._sums) < MOST else Owner()

    def _parts(self, charges: Iterable[Charge]) -> int | None:
        """Return the millionths of cards that a pod holds; None if no node reports one of its cards."""
        parts = 0
        for charge in charges:
            card = self._card(charge.uuid)
            if card is None:
                return None
            parts += round(charge.part_of(card) * _UNIT)
        return parts

    def _card(self, uuid: str) -> Card | None:
        position = self._ledger.position(uuid)
        inventory = self._ledger.inventory(self._ledger.node(position[0])) if position is not None else None
        return inventory.cards[position[1]] if inventory is not None and position is not None else None
