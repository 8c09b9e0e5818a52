"""The short way to a decision, for pods of which there are many: by what is remembered of their like.

It finds what the long way finds (`scheduler.judgement` over every node). There is none for static allocations and for
pods whose neighbours matter, and why no node fits only the long way says.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Final

import msgspec

from allocation.index import Index
from allocation.ledger import Ledger
from allocation.quota import Room, least_need
from allocation.shape import Chosen
from scheduler.eligibility import Eligibility
from scheduler.fleet import Fleet
from scheduler.judgement import Wish
from scheduler.objects import Pod

_CLASSES: Final = 256
_RIVALS: Final = 2


class Found(msgspec.Struct, frozen=True):
    """A node and cards for a pod.

    Attributes:
        chosen: them.
        scores: the best nodes, the chosen one first.
        fitting: on how many nodes every container of the pod fits by itself.
        is_exact: whether that is how many take the pod; else it is the most that may.
    """

    chosen: Chosen
    scores: dict[str, float]
    fitting: int
    is_exact: bool


class Hopeless(msgspec.Struct, frozen=True):
    """No node takes the pod.

    Attributes:
        kind: the same for all pods of which that is true for the same reasons.
        note: what was said of another of them since which nothing has changed; empty where nothing was.
        reasons: the codes of that.
    """

    kind: Hashable
    note: str = ""
    reasons: frozenset[str] = frozenset()


class Shortcut:
    """What is remembered of the pods that were seen."""

    def __init__(self, *, ledger: Ledger, fleet: Fleet, closed: Callable[[], Mapping[str, str]]) -> None:
        """Decide over `ledger` and `fleet`; `closed` answers the nodes that take nobody now."""
        self._ledger = ledger
        self._fleet = fleet
        self._closed = closed
        self._shut: dict[str, str] = {}
        self._index = Index(ledger)
        self._classes: OrderedDict[Hashable, Eligibility] = OrderedDict()
        self._notes: dict[Hashable, tuple[str, frozenset[str]]] = {}
        self._notes_state = (-1, -1)

    def find(self, pod: Pod, wish: Wish, room: Room) -> Found | Hopeless | None:
        """Answer a decision for a pod, None where only the long way leads to one."""
        if wish.fixed is not None or not wish.request:
            return None
        pods = self._fleet.class_of(pod)
        if pods is None:
            return None
        self._look_who_is_closed()
        key = (pods.key, least_need(wish.request).cards)
        eligible = self._classes.get(key)
        if eligible is None:
            eligible = self._classes[key] = Eligibility(
                ledger=self._ledger, fleet=self._fleet, closed=self._shut, pods=pods, count=key[1]
            )
            if len(self._classes) > _CLASSES:
                self._classes.popitem(last=False)
        shape = self._index.shape(wish.request, wish.constraints, eligible=eligible, key=key)
        chosen = shape.place(wish.request, room=room, rivals=_RIVALS)
        if chosen is None:
            kind = (key, wish.request, wish.constraints, room)
            if self._ledger.changes.state != self._notes_state or kind not in self._notes:
                return Hopeless(kind)
            return Hopeless(kind, *self._notes[kind])
        scores = {chosen.allocation.node: chosen.score, **dict(chosen.rivals)}
        return Found(chosen, scores, shape.count(), self._is_exact(wish, room))

    def _is_exact(self, wish: Wish, room: Room) -> bool:
        """Whether a container that fits by itself is all that a node has to take, and no quota tells nodes apart."""
        if len(wish.request.gpu_containers) > 1 or wish.constraints.numa_bind:
            return False
        alike = wish.request.gpu_containers[0].memory_mib is not None and not self._ledger.divided
        return alike or not room.is_limited

    def remember(self, hopeless: Hopeless, note: str, reasons: frozenset[str]) -> None:
        """Keep what the long way said of a pod, for the others of its kind, until anything changes."""
        if self._ledger.changes.state != self._notes_state or len(self._notes) >= _CLASSES:
            self._notes.clear()
            self._notes_state = self._ledger.changes.state
        self._notes[hopeless.kind] = (note, reasons)

    def _look_who_is_closed(self) -> None:
        closed = self._closed()
        if closed != self._shut:
            for node in closed.keys() ^ self._shut.keys():
                self._ledger.note_change(node, taken=False)
            self._ledger.changes.add_other()  # a reason alone may have changed, and is told
            self._shut.clear()
            self._shut.update(closed)
