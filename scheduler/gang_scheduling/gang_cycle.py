"""One scheduling cycle for a gang: from its pods to nodes that are reserved for as many as necessary, or for none.

The pods are scheduled one after the other in the state itself, so that each sees those before it: their cards, CPU and
ports, the rules about other pods, quotas and volumes. On copies all these would have to be decided twice. No other
decision is made meanwhile (`ClusterState.turn`). If one pod too many has no place, all are forgotten, and what was held
for pods before is held again: nothing is reserved while a gang waits.

That is exact for equal pods without rules about other pods, and a heuristic otherwise: the pods with the most cards
come first; if that fails, those with the most memory. Where all nodes must be in one block, the blocks with the most
free memory of cards are tried.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from allocation.steps import Exclusive, Steps
from scheduler.cycle import gang_order
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.gangs.gang import Gang
from scheduler.objects import Pod
from scheduler.state.trial import Trial


class HasPod(Protocol):
    """A pod that waits for a node: an entry of the queue, or one of kube-scheduler's."""

    @property
    def pod(self) -> Pod:
        """Its state now."""


E = TypeVar("E", bound=HasPod)


class ScheduledGang(msgspec.Struct, Generic[E], frozen=True):
    """Nodes are reserved for as many pods of a gang as necessary.

    Attributes:
        gang: the gang.
        members: the pods with their nodes.
        needed: how many of these have to be bound for the gang to run.
        rejected: the other pods, which no node takes, and why.
    """

    gang: Gang
    members: tuple[tuple[E, Scheduled], ...]
    needed: int
    rejected: tuple[tuple[E, Unschedulable], ...] = ()


class RejectedGang(msgspec.Struct, frozen=True):
    """Too few pods of a gang have places.

    Attributes:
        fitting: how many had one.
        pod: the first that had none.
        result: why no node takes it.
    """

    fitting: int
    pod: Pod
    result: Unschedulable

    def note(self, gang: Gang) -> str:
        """Return the reason in words; empty if the reasons were not computed."""
        return f"{self.places(gang)}; pod {self.pod}: {self.result.note}" if self.result.note else ""

    def places(self, gang: Gang) -> str:
        """Return how many pods have places, in words."""
        return f"{gang.placed + self.fitting} of the {gang.size} pods that gang {gang.key} needs have a place"


class GangCycle:
    """Schedules one gang at a time."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        """Schedule the pods by `cycle`."""
        self._cycle = cycle
        self._state = cycle.state

    def schedule(
        self, gang: Gang, entries: Sequence[E], *, explain: bool = True, is_rehearsal: bool = False
    ) -> Steps[ScheduledGang[E] | RejectedGang | None]:
        """Choose nodes for the pods of `entries`, and reserve as many as `gang` needs, or nothing.

        Return None if one of the pods changed meanwhile, or the cluster changed too often. Without `explain` the result
        may lack the reasons why no node takes a pod. After a rehearsal nothing is reserved, whatever its result is.
        """
        best: RejectedGang | None = None
        blocks = yield from gang_order.blocks(self._state, gang)
        orders = yield from gang_order.orders(self._cycle, entries, lambda entry: entry.pod)
        gang.state_before = gang.state
        try:
            for block in blocks:
                gang_order.try_block(self._state, gang, block)
                for order in orders:
                    found = yield from self._in_order(gang, order, explain=explain, is_rehearsal=is_rehearsal)
                    if not isinstance(found, RejectedGang):
                        return found
                    if best is None or found.fitting > best.fitting:
                        best = found
        finally:
            gang_order.try_block(self._state, gang, None)
            gang.state_before = None
        return best

    def _in_order(
        self, gang: Gang, entries: Sequence[E], *, explain: bool, is_rehearsal: bool
    ) -> Steps[ScheduledGang[E] | RejectedGang | None]:
        needed = gang.size - gang.placed
        members: list[tuple[E, Scheduled]] = []
        rejected: list[tuple[E, Unschedulable]] = []
        with Trial(self._state) as trial:
            for entry in entries:
                yield
                trial.add(entry.pod.uid)
                result = yield from self._cycle.schedule(entry.pod, explain=explain and not rejected)
                if result is None:
                    return None
                if isinstance(result, Scheduled):
                    members.append((entry, result))
                    continue
                rejected.append((entry, result))
                if len(entries) - len(rejected) < needed:
                    yield from trial.forget()
                    return RejectedGang(len(members), entry.pod, result)
            with Exclusive("reserving for a gang"):
                if not all(self._state.node_cache.is_assumed(entry.pod.uid) for entry, _ in members):
                    return None  # one of them is gone
                if not is_rehearsal:
                    trial.keep()
                return ScheduledGang(gang, tuple(members), needed, tuple(rejected))
