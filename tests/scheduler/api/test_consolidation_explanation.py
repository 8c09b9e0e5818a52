"""Explanations of pods for which others could be moved, and what users with rights in one namespace see of them."""

from __future__ import annotations

import msgspec
import pytest

from allocation.steps import finish
from cli.explain import explanation_lines
from scheduler.api import explanation
from scheduler.api.consolidation_types import ConsolidationExplanation, PlannedMove
from scheduler.api.explanation_types import Explanation
from scheduler.api.namespaced import redaction
from scheduler.settings import PreemptionSettings, SchedulerSettings
from tests.scheduler.consolidation.scene import Scene
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.scheduling import cycle_of


def explained(*, priority: int = 0) -> Explanation:
    """Return the explanation of a pod that wants two cards, where each of two nodes has a free one."""
    scene = Scene("a", "b")
    scene.run("one@a", "two@b")
    waiting = scene.wait(priority=priority)
    found = finish(explanation.explain(cycle_of(scene.state), waiting, evictions=evictions_of(scene.state)))
    assert found is not None
    return found


def test_pods_that_could_be_moved_are_named() -> None:
    """With the command that moves them."""
    found = explained()
    moves = (PlannedMove("default", "one", "b", 1000),)
    assert found.consolidation == ConsolidationExplanation("a", 1, moves)
    (line,) = explanation_lines.of_consolidation(found)
    assert line == (
        "consolidation: it would fit on node a if 1 pod moved from there to other nodes; see 'kubectl gpu consolidate"
        " large -n default'"
    )


def test_pods_are_not_moved_for_one_that_preempts_others() -> None:
    """Preemption comes first."""
    found = explained(priority=9)
    assert found.preemption is not None
    assert (found.preemption.count, found.consolidation) == (1, None)
    assert explanation_lines.of_consolidation(found) == []


def test_users_of_another_namespace_see_how_many_pods_could_be_moved() -> None:
    """And not which."""
    shown = redaction.of_explanation(msgspec.structs.replace(explained(), namespace="team"))
    assert shown.consolidation == ConsolidationExplanation("a", 1)
    own = redaction.of_explanation(explained())
    assert own.consolidation is not None
    assert [each.name for each in own.consolidation.moves] == ["one"]


@pytest.mark.parametrize(
    ("extender", "preempts", "expected"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_no_pods_are_moved_without_the_queue_or_the_right_to_evict(
    *, extender: bool, preempts: bool, expected: bool
) -> None:
    """In extender mode kube-scheduler has the queue; without preemption there is no right."""
    settings = SchedulerSettings(extender=extender, preemption=PreemptionSettings(enabled=preempts))
    assert settings.moves_pods == expected
