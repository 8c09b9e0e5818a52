"""The pods whose end makes room in the quotas of a pod that waits: the cheapest of many."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocation import victims
from allocation.names import CLAIM
from allocation.steps import finish
from allocation.victims import Cost
from scheduler.preemption import accounts
from scheduler.preemption.accounts import Accounts
from scheduler.preemption.eligibility import EligibleUnit
from scheduler.preemption.node_search import Preemption
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.claims import claim
from tests.scheduler.support.gangs import of_gang
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.quotas import gpu_quota

PRIORITY = 3
MOST = 4
WAITS = pod("waits", memory=100, priority=PRIORITY)

RUNNING = st.fixed_dictionaries(
    {
        "priority": st.integers(0, PRIORITY + 1),
        "minute": st.integers(0, 3),
        "namespace": st.sampled_from(("default", "default", "default", "other")),
        "is_slow": st.sampled_from((False, False, False, True)),
        "gang": st.sampled_from(("", "", "", "g")),
        "deleted": st.sampled_from((None, None, None, "2026-01-01T01:00:00Z")),
    }
)


def _build(running: list[dict[str, Any]]) -> ClusterState:
    """Return a cluster in which a quota limits the pods of the namespace `default`."""
    made = state(*(f"n{number}" for number in range(len(running))), cards=1)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 1}}))
    for name in ("default", "other"):
        made.set_claim(of_gang(claim("g", namespace=name, exclusivity="Shared"), "gang"))
    for number, each in enumerate(running):
        added = allocated(
            f"r{number}",
            node=f"n{number}",
            memory=100,
            priority=each["priority"],
            namespace=each["namespace"],
            created=f"2026-01-01T00:0{each['minute']}:00Z",
            deleted=each["deleted"],
            terminationGracePeriodSeconds=100_000 if each["is_slow"] else 30,
        )
        if each["gang"]:
            added.metadata.annotations[CLAIM] = each["gang"]
        made.set_pod(added)
    return made


def _cost(unit: EligibleUnit) -> Cost:
    return victims.cost(each.candidate for each in unit)


def _running(priority: int, minute: int, *, is_slow: bool = False, gang: str = "") -> dict[str, Any]:
    fields = {"priority": priority, "minute": minute, "is_slow": is_slow, "gang": gang}
    return {**fields, "namespace": "default", "deleted": None}


@settings(deadline=None, max_examples=100)
@example([_running(0, 3, is_slow=True)] * MOST + [_running(1, 0)])  # cheaper than what there is enough of, and older
@example([_running(1, 3)] * (MOST - 1) + [_running(1, 3, gang="g")] * 2 + [_running(1, 0)] * MOST)
@example([_running(1, 1)] * (2 * MOST) + [_running(1, 0), _running(1, 2)] * MOST)
@given(st.lists(RUNNING, max_size=16))
def test_the_cheapest_own_units_are_found(running: list[dict[str, Any]]) -> None:
    """Whatever the order in which the pods are known: by priority, start, grace period and gang."""
    made = _build(running)
    eligibility = chooser_of(made).eligibility
    with patch.object(accounts, "_MOST", MOST):
        found = finish(Accounts(made, eligibility, WAITS).own_pods())
    own = [each.uid for each in made.running.values() if each.metadata.namespace == "default"]
    units = {unit[0].pod.uid: _cost(unit) for uid in own if (unit := eligibility.unit(uid, WAITS))}
    ending = {uid for uid in own if made.running[uid].metadata.deletion_timestamp}
    assert [_cost(unit) for unit in found.units] == sorted(units.values())[:MOST]
    assert found.leaving == ending


@pytest.mark.parametrize("count", [20, 40, 70])
def test_as_many_pods_end_as_the_quota_needs(count: int) -> None:
    """The pods of the quota's other nodes, however many: those that are looked at double until they are enough."""
    names = [f"n{number}" for number in range(count)]
    made = state(*names)
    made.set_node(node("large"))
    made.agent_reports.set(status("large", memory=100 * count))
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 100 * count}}))
    for name in names:
        made.set_pod(allocated(f"on-{name}", node=name, memory=100))
    for share, victims_ in ((count, count), (count - 1, count - 1), (1, 1)):
        found = finish(chooser_of(made).choose(pod("waits", memory=100 * share, priority=PRIORITY)))
        assert isinstance(found, Preemption)
        assert len(found.victims) == victims_
