"""The accounts of a pod that waits: its namespace and its queue. Only their own pods can make room in their quotas."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocation import victims
from allocation.quota import UNLIMITED, Burst, Headroom
from allocation.steps import Steps
from allocation.victims import MOST_PRIORITY, Cost, Level
from scheduler.fairness.use import Use
from scheduler.objects import Pod
from scheduler.preemption.eligibility import Eligibility, EligiblePod, EligibleUnit, started
from scheduler.preemption.releasable import LEAVING
from scheduler.state.cluster_state import ClusterState

_READ: Final = 1024
"""The pods that are read in one step."""
_STEP: Final = 64
"""The pods that are compared in one step."""
_DIMENSIONS: Final = 5
"""Pods, MiB, cores, TFLOPs and cards."""
_MOST: Final = 256
"""The most units that are considered, wherever they run: the cheapest."""
_HIGHEST: Final[Level] = (True, True, MOST_PRIORITY)

Units = dict[str, tuple[Cost, EligibleUnit]]
"""Pods that are preempted together, with their cost, by the UID of the first of them."""


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
        ending, by_priority = list[Pod](), defaultdict[int, list[Pod]](list)
        for position, each in enumerate(tuple(self._state.running.values())):
            if position % _READ == _READ - 1:
                yield
            if each.metadata.deletion_timestamp:
                ending.append(each)
            elif each.spec.priority < self._pod.spec.priority:
                by_priority[each.spec.priority].append(each)
        leaving = (each.uid for each in ending if self._eligibility.level(each.uid) == LEAVING and self._is_own(each))
        units = yield from self._cheapest_units(by_priority)
        return OwnPods(frozenset(leaving), units)

    def _is_own(self, pod: Pod) -> bool:
        return pod.metadata.namespace == self._namespace or self._eligibility.account(pod) == self._key

    def _cheapest_units(self, by_priority: Mapping[int, Iterable[Pod]]) -> Steps[tuple[EligibleUnit, ...]]:
        """Return the cheapest units of own pods that may be preempted, the cheapest first."""
        found: Units = {}
        for priority in sorted(by_priority):
            found = _cheapest(found)
            level, since = _dearest(found, priority)
            if level < (False, False, priority):
                break
            for position, each in enumerate(by_priority[priority]):
                if position % _STEP == _STEP - 1:
                    yield
                if (since and started(each) <= since) or not self._is_own(each):
                    continue  # there are enough that are cheaper
                if unit := self._eligibility.unit(each.uid, self._pod):
                    found[unit[0].pod.uid] = victims.cost(each.candidate for each in unit), unit
                if len(found) >= 2 * _MOST:
                    found = _cheapest(found)
                    _, since = _dearest(found, priority)
        return tuple(unit for _, unit in _cheapest(found).values())

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


def _dearest(cheapest: Units, priority: int) -> tuple[Level, str]:
    """Return the level of the dearest of enough units, and since when it has run if it is a pod of a priority.

    No older pod of that priority is cheaper. The timestamp is empty if younger and older ones may be, and with fewer
    units the level is above all others.
    """
    if len(cheapest) < _MOST:
        return _HIGHEST, ""
    *_, ((level, _, _), unit) = cheapest.values()
    is_single = len(unit) == 1 and level == (False, False, priority)
    return level, started(unit[0].pod) if is_single else ""


def _cheapest(units: Units) -> Units:
    """Return those of some units with their costs that are considered, the cheapest first."""
    return {uid: units[uid] for uid in sorted(units, key=lambda uid: units[uid][0])[:_MOST]}
