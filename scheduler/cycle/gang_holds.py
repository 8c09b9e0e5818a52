"""Holds cards for the pods of a gang: for as many as it needs together, or for none.

One pod after the other gets a place, and each sees what is held for those before it: their cards, CPU and ports, and
what they take of the quotas. A place is free already, or becomes free when other pods have gone; a `Finder` says
whether pods are evicted for it or end by themselves. If one pod too many has no place, nothing of all this is held, and
what was held for the pods before is held again.

The caller has the turn (`ClusterState.turn`): no gang is scheduled meanwhile.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.gang import MOST_MEMBERS
from allocation.quota import Headroom
from allocation.steps import Steps
from scheduler.cycle import gang_order
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.gangs.gang import Gang
from scheduler.holds import Hold, HoldCause
from scheduler.objects import Pod
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState

_MOST: Final = 64
"""The most pods of a gang for which others have to go: each is a search over all nodes."""
_FITS: Final = "its gang fits without"


class Place(msgspec.Struct, frozen=True):
    """What a pod of a gang will have.

    Attributes:
        node: its node.
        charges: the share of each card.
        awaited: the UIDs of the pods that have to end first.
    """

    node: str
    charges: tuple[Charge, ...]
    awaited: frozenset[str] = frozenset()


class NoPlace(msgspec.Struct, frozen=True):
    """Too few pods of a gang have places.

    Attributes:
        why: the reason; empty if the pods changed meanwhile, so that it has to be tried again.
    """

    why: str = ""


class Finder(Protocol):
    """Finds a place for one pod of a gang after another where others have to go first."""

    def find(self, pod: Pod) -> Steps[Place | NoPlace]:
        """Return a place for a pod that fits nowhere now, by the state of the last step, or why none."""


Found = TypeVar("Found", bound=Finder)


def waiting_pods(state: ClusterState, gang: Gang) -> list[Pod]:
    """Return the pods of a gang that wait in the queue and are not being bound."""
    entries = (state.queue.get(uid) for uid in itertools.islice(tuple(gang.waiting), MOST_MEMBERS))
    return [entry.pod for entry in entries if entry is not None and entry.place != "binding"]


def headroom_of(state: ClusterState, pod: Pod) -> Headroom | None:
    """Return what the quotas leave to a pod beside what is held for others of its gang; None if not one pod."""
    gang = state.gangs.of(pod.uid)
    if gang is None:
        return state.requirements.headroom(pod)
    held = state.holds.of_others(gang.key, pod.uid)
    headroom = state.requirements.headroom(pod, others=held.burst)
    pods_left = state.quotas.pods_left(pod.metadata.namespace), state.fair_share.pods_left(state.fair_share.key(pod))
    if any(left is not None and left - held.pods < 1 for left in pods_left):
        return None
    return headroom.less(memory_mib=held.memory_mib, cores=held.cores, tflops=held.tflops, cards=held.cards)


class GangHolds:
    """Holds cards for one gang after another."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        """Find free places by `cycle`."""
        self._cycle = cycle
        self._state = cycle.state

    def hold(
        self, gang: Gang, make: Callable[[], Found], *, cause: HoldCause, deadline: float | None = None
    ) -> Steps[Found | NoPlace]:
        """Hold what as many pods of a gang need as have to get nodes together, or nothing.

        Return the finder that has found their places, of those that `make` makes for each attempt, or why there are
        too few places.
        """
        pods = waiting_pods(self._state, gang)
        if gang.is_committing or gang.is_satisfied or gang.placed + len(pods) < gang.size:
            return NoPlace()
        blocks = yield from gang_order.blocks(self._state, gang)
        orders = yield from gang_order.orders(self._cycle, pods, lambda pod: pod)
        first: NoPlace | None = None
        try:
            for block in blocks:
                gang_order.try_block(self._state, gang, block)
                for order in orders:
                    finder = make()
                    failed = yield from self._in_order(gang, order, finder, cause, deadline)
                    if failed is None:
                        return finder
                    first = first or failed
        finally:
            gang_order.try_block(self._state, gang, None)
        return first or NoPlace()

    def _in_order(
        self, gang: Gang, pods: Sequence[Pod], finder: Finder, cause: HoldCause, deadline: float | None
    ) -> Steps[NoPlace | None]:
        """Hold what the first pods need that have places, and return None; or return why too few have."""
        state, needed = self._state, gang.size - gang.placed
        before = [(hold, pod) for pod in pods if (hold := state.holds.of(pod.uid)) is not None]
        holds: list[Hold] = []
        left_out, searches = 0, itertools.count(1)
        is_kept = False
        try:
            for pod in pods:
                yield
                place = yield from self._place(gang, pod, finder, searches)
                if isinstance(place, NoPlace):
                    left_out += 1
                    if not place.why or len(pods) - left_out < needed:
                        return place
                    continue
                holds.append(self._hold(gang, pod, place, cause, deadline))
                if len(holds) == needed:
                    break
            # Pods of higher rank may have taken something meanwhile.
            if len(holds) < needed or any(state.holds.of(hold.uid) is not hold for hold in holds):
                return NoPlace()
            is_kept = any(hold.awaited for hold in holds)
            return None if is_kept else NoPlace(_FITS)
        finally:
            if not is_kept:
                self._restore(holds, before)

    def _place(self, gang: Gang, pod: Pod, finder: Finder, searches: Iterator[int]) -> Steps[Place | NoPlace]:
        """Return a place for a pod, by what is true in the last step."""
        found: Place | NoPlace | None = yield from self._free(pod)
        if found is None and next(searches) > _MOST:
            return NoPlace(f"more than {_MOST} pods of gang {gang.key} have no place")
        if found is None:
            found = yield from finder.find(pod)
        if self._state.queue.get(pod.uid) is None:
            return NoPlace()
        return NoPlace(f"pod {pod} of its gang: {found.why}") if isinstance(found, NoPlace) and found.why else found

    def _free(self, pod: Pod) -> Steps[Place | None]:
        """Return a place for a pod that is free now; None if it fits nowhere."""
        if pod.excess or self._state.unsupported(pod):
            return None
        try:
            requirements = self._state.requirements.unlimited(pod)
        except AllocationError:
            return None
        headroom = headroom_of(self._state, pod)
        if headroom is None:
            return None
        found = yield from self._cycle.find(pod, requirements, headroom)
        return Place(found.node, found.charges) if isinstance(found, Scheduled) else None

    def _hold(self, gang: Gang, pod: Pod, place: Place, cause: HoldCause, deadline: float | None) -> Hold:
        fair_share = self._state.fair_share
        hold = Hold(
            pod.uid,
            fair_share.key(pod),
            fair_share.pod_rank(pod),
            place.node,
            place.charges,
            place.awaited,
            cause=cause,
            deadline=deadline,
            gang=gang.key,
        )
        self._state.holds.add(hold, pod)
        return hold

    def _restore(self, holds: Sequence[Hold], before: Sequence[tuple[Hold, Pod]]) -> None:
        """Release what was held, and hold again what was held before for pods that still wait.

        Other pods may have been rejected meanwhile because of it, so they are tried again.
        """
        state = self._state
        for hold in holds:
            if state.holds.of(hold.uid) is hold:
                state.holds.release(hold.uid)
        if holds:
            state.queue.notify(ClusterEvent.POD_REMOVED)
        state.restore_holds(before)
