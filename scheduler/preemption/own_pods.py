"""The pods that are charged to the same namespace or queue as one that waits: only they make room in its quotas."""

from typing import Final

import msgspec

from allocation import victims
from allocation.steps import Steps
from allocation.victims import Cost
from scheduler.objects import Pod
from scheduler.preemption.accounts import Accounts
from scheduler.preemption.eligibility import Eligibility, EligibleUnit, started
from scheduler.preemption.releasable import LEAVING
from scheduler.state.cluster_state import ClusterState

_STEP: Final = 16
_MOST: Final = 256
"""So many units are considered, wherever they run: the cheapest."""


class OwnPods(msgspec.Struct, frozen=True):
    """The running pods of the accounts of a pod that waits.

    Attributes:
        leaving: the UIDs of those that end already.
        units: those that it may preempt, with their gangs; the cheapest first.
    """

    leaving: frozenset[str] = frozenset()
    units: tuple[EligibleUnit, ...] = ()


def find(state: ClusterState, eligibility: Eligibility, accounts: Accounts, pod: Pod) -> Steps[OwnPods]:
    """Return the pods of the accounts of `pod`; none if no quota limits it."""
    if not accounts.are_limited:
        return OwnPods()
    leaving, found = set[str](), dict[str, EligibleUnit]()
    highest, youngest = pod.spec.priority - 1, ""
    for place, each in enumerate(tuple(state.running.values())):
        if place % _STEP == _STEP - 1:
            yield
        is_leaving = bool(each.metadata.deletion_timestamp) and eligibility.level(each.uid) == LEAVING
        priority = each.spec.priority
        if not is_leaving and (priority > highest or (priority == highest and started(each) <= youngest)):
            continue  # there are enough that are cheaper
        if not accounts.is_own(each, eligibility.account(each)):
            continue
        if is_leaving:
            leaving.add(each.uid)
        elif unit := eligibility.unit(each.uid, pod):
            found[unit[0].pod.uid] = unit
        if len(found) >= 2 * _MOST:
            found = _cheapest(found)
            *_, dearest = found.values()
            highest = max(each.pod.spec.priority for each in dearest)
            youngest = started(dearest[0].pod) if len(dearest) == 1 else ""
    return OwnPods(frozenset(leaving), tuple(_cheapest(found).values()))


def _cheapest(units: dict[str, EligibleUnit]) -> dict[str, EligibleUnit]:
    """Return so many of some units as are considered, the cheapest first."""

    def cost(uid: str) -> Cost:
        return victims.cost(each.candidate for each in units[uid])

    return {uid: units[uid] for uid in sorted(units, key=cost)[:_MOST]}
