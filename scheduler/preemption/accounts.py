"""The accounts of a pod that waits: its namespace and its queue. Only their own pods can make room in their quotas."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from allocation import victims
from allocation.quota import UNLIMITED, Burst, Headroom
from allocation.steps import Steps
from allocation.victims import Cost
from scheduler.fairness.use import Use
from scheduler.objects import Pod
from scheduler.preemption.eligibility import Eligibility, EligiblePod, EligibleUnit, started
from scheduler.preemption.releasable import LEAVING
from scheduler.state.cluster_state import ClusterState

_STEP: Final = 64
_DIMENSIONS: Final = 5
"""Pods, MiB, cores, TFLOPs and cards."""
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
        self._held = _amounts(held)
        self._burst = state.requirements.burst(pod) + held.burst
        """What may be used beyond requests by the pod and those with which it gets a node."""
        self._known: dict[str, Sequence[int]] = {}

    def headroom(self, gone: Iterable[EligiblePod] = ()) -> Headroom | None:
        """Return what the quotas leave without the pods `gone`; None if there would still be too many pods."""
        state = self._state
        pods_left = state.quotas.pods_left(self._namespace), state.fair_share.pods_left(self._key)
        of_queue = state.fair_share.headroom(self._key)
        limits_amounts = of_queue.is_limited or state.quotas.headroom(self._namespace).is_limited
        if pods_left == (None, None) and not limits_amounts:
            return UNLIMITED
        held = [-amount for amount in (*self._held, *self._held)]  # for the pods with which it gets a node
        *given_back, mib, cores = map(sum, zip((*held, 0, 0), *map(self._given_back, gone), strict=True))
        of_namespace = state.quotas.headroom(self._namespace, burst=self._burst - Burst(mib, cores))
        if any(
            left is not None and left + less < 1
            for left, less in zip(pods_left, given_back[::_DIMENSIONS], strict=True)
        ):
            return None
        return _with(of_namespace, *given_back[1:_DIMENSIONS]).within(_with(of_queue, *given_back[_DIMENSIONS + 1 :]))

    def own_pods(self) -> Steps[OwnPods]:
        """Return the running pods that are charged to the accounts; none if no quota limits these."""
        if self.headroom() == UNLIMITED:
            return OwnPods()
        leaving, found = set[str](), dict[str, tuple[Cost, EligibleUnit]]()
        highest, youngest = self._pod.spec.priority - 1, ""
        for position, each in enumerate(tuple(self._state.running.values())):
            if position % _STEP == _STEP - 1:
                yield
            is_ending, priority = each.metadata.deletion_timestamp, each.spec.priority
            if priority >= highest and not is_ending and (priority > highest or started(each) <= youngest):
                continue  # there are enough that are cheaper
            if each.metadata.namespace != self._namespace and self._eligibility.account(each) != self._key:
                continue
            if is_ending and self._eligibility.level(each.uid) == LEAVING:
                leaving.add(each.uid)
            elif unit := self._eligibility.unit(each.uid, self._pod):
                found[unit[0].pod.uid] = victims.cost(each.candidate for each in unit), unit
            if len(found) >= 2 * _MOST:
                found = _cheapest(found)
                *_, (_, dearest) = found.values()
                highest = max(each.pod.spec.priority for each in dearest)
                youngest = started(dearest[0].pod) if len(dearest) == 1 else ""
        return OwnPods(frozenset(leaving), tuple(unit for _, unit in _cheapest(found).values()))

    def _given_back(self, each: EligiblePod) -> Sequence[int]:
        """Return the amounts that a pod gives back to the namespace, followed by those that it gives to the queue.

        The last two are what a pod of the namespace may use beyond what it holds.
        """
        uid = each.pod.uid
        if uid not in self._known:
            reservation, use = self._state.ledger.reservation(uid), Use(pods=1)
            if reservation is not None:
                use.add(reservation, 1)
            amounts = _amounts(use)
            is_own = each.pod.metadata.namespace == self._namespace, each.account == self._key
            bursts = (use.burst_memory_mib, use.burst_cores) if is_own[0] else (0, 0)
            self._known[uid] = [*(amount * own for own in is_own for amount in amounts), *bursts]
        return self._known[uid]


def _amounts(use: Use) -> tuple[int, int, int, int, int]:
    return use.pods, use.memory_mib, use.cores, use.tflops, use.cards


def _with(headroom: Headroom, memory_mib: int, cores: int, tflops: int, cards: int) -> Headroom:
    """Return the headroom with what is given back."""
    return headroom.less(memory_mib=-memory_mib, cores=-cores, tflops=-tflops, cards=-cards)


def _cheapest(units: dict[str, tuple[Cost, EligibleUnit]]) -> dict[str, tuple[Cost, EligibleUnit]]:
    """Return those of some units with their costs that are considered, the cheapest first."""
    return {uid: units[uid] for uid in sorted(units, key=lambda uid: units[uid][0])[:_MOST]}
