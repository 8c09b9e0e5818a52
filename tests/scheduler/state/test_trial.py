"""Pods that are assumed to see whether they fit are forgotten step by step; those that are kept count as others do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from allocation.steps import finish
from scheduler.api import capacity
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.gang_scheduling.gang_cycle import GangCycle, ScheduledGang
from scheduler.state.trial import Trial
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.gang_scheduling.test_decision import holding, waiting
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.gang_driving import member
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocation.steps import Steps
    from scheduler.state.cluster_state import ClusterState

MANY = 200
"""The pods that are forgotten in several steps; one more does not fit."""


def of_a_gang(made: ClusterState) -> Steps[object]:
    """Return the decision about a gang without a place for its last pod."""
    for index in range(MANY + 1):
        made.set_pod(member(f"m{index}", memory=250, size=MANY + 1))
    return GangCycle(cycle_of(made)).schedule(*waiting(made))


def of_copies(made: ClusterState) -> Steps[object]:
    """Return the count of the pods that fit."""
    submitted = SubmittedPod(PlannedPod.of(pod("a", memory=250), ()), ())
    return capacity.count(cycle_of(made), "shape", submitted, most=MANY + 1, is_over=lambda: False)


@pytest.mark.parametrize("begin", [of_a_gang, of_copies])
def test_pods_are_forgotten_in_several_steps(begin: Callable[[ClusterState], Steps[object]]) -> None:
    """Informers and other work get their turn between two steps."""
    made = state("n1", "n2", cards=MANY // 8)
    tried = [len(made.tried) for _ in begin(made)]
    assert [after for before, after in pairwise(tried) if after < before] == [192, 128, 64, 0]
    assert not made.tried


def kept(made: ClusterState) -> None:
    """Let a gang of two pods with little memory get places."""
    for index in range(2):
        made.set_pod(member(f"m{index}", memory=100))
    assert isinstance(finish(GangCycle(cycle_of(made)).schedule(*waiting(made))), ScheduledGang)
    assert made.node_cache.is_assumed("uid-m1")


def test_a_pod_that_was_kept_and_is_not_bound_wakes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried any more: those of its application may have its card."""
    made, woken = state("n1"), list[str]()
    kept(made)
    assert not made.tried
    monkeypatch.setattr(made.bindings, "peers", lambda uid: [f"peer of {uid}"])
    monkeypatch.setattr(made.queue, "wake", woken.extend)
    made.forget("uid-m1")
    assert woken == ["peer of uid-m1"]


def test_a_pod_that_is_being_bound_is_not_forgotten() -> None:
    """Its cards would be given to another one meanwhile."""
    made = state("n1")
    kept(made)
    with Trial(made) as trial:
        trial.add("uid-m1")
        assert not made.tried
    assert made.node_cache.is_assumed("uid-m1")


def test_a_gang_that_takes_no_held_card_wakes_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held for another pod is as it was."""
    made, waits, notified = state("n1"), pod("waits", memory=1000), list[object]()
    made.set_pod(waits)
    hold = holding(made, "waits", 0)
    monkeypatch.setattr(made.queue, "notify", notified.append)
    kept(made)
    assert not notified
    assert made.holds.of(waits.uid) is hold
