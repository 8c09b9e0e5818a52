"""The accounts of a pod that waits: its namespace and its queue. Only their own pods can make room in their quotas."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from allocation import victims
from allocation.quota import UNLIMITED, Headroom
from allocation.steps import Steps
from allocation.victims import Cost
from scheduler.fairness.use import Use
from scheduler.objects import Pod
from scheduler.preemption.eligibility import Eligibility, EligiblePod, EligibleUnit, started
from scheduler.preemption.releasable import LEAVING
from scheduler.state.cluster_state import ClusterState

_STEP: Final = 16
_MOST: Final = 256
"""The most units that are considered, wherever they run: the cheapest."""


class OwnPods(msgspec.Struct, frozen=True):
    """The running pods of the accounts of a pod that waits.

    Attributes:
        leaving: the UIDs of those that end already.
        units: those that it may preempt, with their gangs; the cheapest first.
    """

    leaving: frozenset[str] = frozenset()
    units: tuple[EligibleUnit, ...] = ()


class Accounts:
    """The accounts of one pod."""

    def __init__(self, state: ClusterState, eligibility: Eligibility, pod: Pod) -> None:
        """Read the quotas in `state`."""
        self._state = state
        self._eligibility = eligibility
        self._pod = pod
        self._namespace = pod.metadata.namespace
        self._key = state.fair_share.key(pod)
        gang = state.gangs.of(pod.uid)
        held = state.holds.of_others(gang.key, pod.uid) if gang is not None else Use()
        self._held = held.pods, held.memory_mib, held.cores, held.cards
        self._known: dict[str, Sequence[int]] = {}

    def headroom(self, gone: Iterable[EligiblePod] = ()) -> Headroom | None:
        """Return what the quotas leave without the pods `gone`; None if there would still be too many pods."""
        state = self._state
        pods_left = state.quotas.pods_left(self._namespace), state.fair_share.pods_left(self._key)
        left_now = state.quotas.headroom(self._namespace), state.fair_share.headroom(self._key)
        if pods_left == (None, None) and not any(each.is_limited for each in left_now):
            return UNLIMITED
        held = [-amount for amount in (*self._held, *self._held)]  # for the pods with which it gets a node
        given_back = [sum(amounts) for amounts in zip(held, *map(self._given_back, gone), strict=True)]
        if any(left is not None and left + less < 1 for left, less in zip(pods_left, given_back[::4], strict=True)):
            return None
        return _with(left_now[0], *given_back[1:4]).within(_with(left_now[1], *given_back[5:]))

    def own_pods(self) -> Steps[OwnPods]:
        """Return the running pods that are charged to the accounts; none if no quota limits these."""
        if self.headroom() == UNLIMITED:
            return OwnPods()
        leaving, found = set[str](), dict[str, EligibleUnit]()
        highest, youngest = self._pod.spec.priority - 1, ""
        for position, each in enumerate(tuple(self._state.running.values())):
            if position % _STEP == _STEP - 1:
                yield
            is_leaving = bool(each.metadata.deletion_timestamp) and self._eligibility.level(each.uid) == LEAVING
            priority = each.spec.priority
            if not is_leaving and (priority > highest or (priority == highest and started(each) <= youngest)):
                continue  # there are enough that are cheaper
            if each.metadata.namespace != self._namespace and self._eligibility.account(each) != self._key:
                continue
            if is_leaving:
                leaving.add(each.uid)
            elif unit := self._eligibility.unit(each.uid, self._pod):
                found[unit[0].pod.uid] = unit
            if len(found) >= 2 * _MOST:
                found = _cheapest(found)
                *_, dearest = found.values()
                highest = max(each.pod.spec.priority for each in dearest)
                youngest = started(dearest[0].pod) if len(dearest) == 1 else ""
        return OwnPods(frozenset(leaving), tuple(_cheapest(found).values()))

    def _given_back(self, each: EligiblePod) -> Sequence[int]:
        """Return pods, MiB, cores and cards that a pod gives back to the namespace, and the same for the queue."""
        uid = each.pod.uid
        if uid not in self._known:
            reservation, use = self._state.ledger.reservation(uid), Use(pods=1)
            for charge in reservation.charges if reservation is not None else ():
                use.add(charge, 1)
            amounts = use.pods, use.memory_mib, use.cores, use.cards
            is_own = each.pod.metadata.namespace == self._namespace, each.account == self._key
            self._known[uid] = [amount * own for own in is_own for amount in amounts]
        return self._known[uid]


def _with(headroom: Headroom, memory_mib: int, cores: int, cards: int) -> Headroom:
    """Return the headroom with what is given back."""
    return headroom.less(memory_mib=-memory_mib, cores=-cores, cards=-cards)


def _cheapest(units: dict[str, EligibleUnit]) -> dict[str, EligibleUnit]:
    """Return those of some units that are considered, the cheapest first."""

    def cost(uid: str) -> Cost:
        return victims.cost(each.candidate for each in units[uid])

    return {uid: units[uid] for uid in sorted(units, key=cost)[:_MOST]}
