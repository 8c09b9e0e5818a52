"""Pods that are assumed to see whether they fit are forgotten step by step; those that are kept count as others do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from allocation.steps import finish
from scheduler.api import capacity
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.gang_scheduling.gang_cycle import GangCycle, ScheduledGang
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.gang_scheduling.test_decision import waiting
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
    assert max(tried) >= MANY
    assert not made.tried
    assert max(before - after for before, after in pairwise((*tried, 0))) <= MANY // 2


def test_the_pods_of_a_gang_that_is_kept_are_not_tried_any_more() -> None:
    """What one of them gives back, as when its Binding is refused, is offered to others."""
    made = state("n1")
    for index in range(2):
        made.set_pod(member(f"m{index}", memory=100))
    found = finish(GangCycle(cycle_of(made)).schedule(*waiting(made)))
    assert isinstance(found, ScheduledGang)
    assert made.node_cache.is_assumed("uid-m1")
    assert not made.tried
