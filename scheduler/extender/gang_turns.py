"""Which gang gathers, and which is next: namespaces take turns, each with the gang that has wanted to for longest."""

import asyncio
from collections import OrderedDict

import msgspec

from scheduler.binding.binder import Result
from scheduler.extender.gang_rehearsals import Plan
from scheduler.gang_scheduling.gang_binding import Member
from scheduler.gangs.gang import GangKey


class Arrival(msgspec.Struct, eq=False):
    """A pod that came to its node, with what is reserved for it, and what will become of it."""

    member: Member
    outcome: asyncio.Future[Result]

    def resolve(self, result: Result) -> None:
        """Set what has become of it, unless that is known."""
        if not self.outcome.done():
            self.outcome.set_result(result)


class Turn(msgspec.Struct, eq=False):
    """The turn of one gang.

    Attributes:
        key: the gang.
        plan: where its pods fit together.
        deadline: when it ends, on the clock of the queue.
        has_begun: whether a pod of it has come since its turn was announced.
        arrivals: its pods that wait at their nodes, by UID.
    """

    key: GangKey
    plan: Plan
    deadline: float
    has_begun: bool = False
    arrivals: dict[str, Arrival] = {}


class GangTurns:
    """The turn of the gang that gathers, and the gangs that want to.

    However many gangs of a namespace want to, those of another one have their turn after one of them.

    Attributes:
        current: the turn of a gang that gathers, or that is to gather as soon as one of its pods comes.
    """

    def __init__(self) -> None:
        self.current: Turn | None = None
        self._namespaces: OrderedDict[str, dict[GangKey, None]] = OrderedDict()

    def add(self, key: GangKey) -> None:
        """Note that a gang wants to gather; one that wants to already keeps its place."""
        self._namespaces.setdefault(key.namespace, {})[key] = None

    def drop(self, key: GangKey) -> None:
        """Note that a gang does not want to gather any more, or does so now."""
        gangs = self._namespaces.get(key.namespace, {})
        gangs.pop(key, None)
        if not gangs:
            self._namespaces.pop(key.namespace, None)

    def first(self) -> GangKey | None:
        """Return the gang that is next; None if no gang wants to gather."""
        gangs = next(iter(self._namespaces.values()), {})
        return next(iter(gangs), None)

    def serve(self, key: GangKey) -> None:
        """Note that a gang has had its turn: it does not want another one, and other namespaces come first."""
        self.drop(key)
        if key.namespace in self._namespaces:
            self._namespaces.move_to_end(key.namespace)

    def before(self, key: GangKey) -> GangKey | None:
        """Return the gang whose turn comes before that of another one; None if the other one may gather now."""
        first = self.current.key if self.current is not None else self.first()
        return None if first == key else first
