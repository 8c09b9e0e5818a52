"""The explanation of a pod whose gang waits says what preemption does for the whole gang, or why it does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allocation.steps import finish
from cli.explain import explanation_lines
from scheduler.api import explanation
from scheduler.api.evictions import Evictions
from scheduler.api.namespaced import redaction
from tests.scheduler.preemption.test_gang_preemption import gang, scene
from tests.scheduler.support.gang_driving import member

if TYPE_CHECKING:
    from scheduler.api.explanation_types import Explanation
    from tests.scheduler.support.preemption_scene import Scene


def explained(made: Scene, name: str) -> Explanation:
    """Return the explanation of a pod that waits, as users of its namespace see it."""
    pod = made.state.queue.pod(f"uid-{name}")
    assert pod is not None
    evictions = Evictions(made.chooser, gangs=made.preemptor.gang_chooser)
    return redaction.of_explanation(finish(explanation.explain(made.driver.cycle, pod, evictions=evictions)))


async def test_what_is_held_for_all_pods_of_a_gang_is_counted() -> None:
    """Each names its own node; the explanation of a pod that the gang does not need says so."""
    made = scene("a", "b", "c")
    made.run("on-a@a", "on-b@b", "on-c@c", namespace="other")
    made.driver.add(*gang(3, size=2))
    await made.look()
    (line,) = explanation_lines.of_preemption(explained(made, "m0"))
    assert line.startswith("preemption: cards are held for 2 pods of its gang, its own on node ")
    assert line.endswith(", because pods are evicted for it; 2 pods have to end first")
    (spare,) = explanation_lines.of_preemption(explained(made, "m2"))
    assert spare == (
        "preemption: no candidates, because cards are held for 2 other pods of its gang, which needs no more"
    )


async def test_all_pods_of_a_gang_have_the_reason_why_none_is_preempted() -> None:
    """It names the pod of the gang that has no place, and no pod of another namespace; nothing is held for it."""
    made = scene("a", "b")
    made.run("on-a@a", namespace="secret")
    made.run("important@b", priority=90, namespace="secret")
    made.driver.add(*gang(2))
    await made.look()
    for name in ("m0", "m1"):
        preemption = explained(made, name).preemption
        assert preemption is not None
        assert preemption.why.startswith("pod default/m1 of its gang: evicting all eligible lower-priority pods")
        assert "secret" not in str(preemption)
    assert not made.state.holds


@pytest.mark.parametrize(("priority", "words"), [(10, "is decided soon"), (0, "would not make any node fit")])
async def test_before_it_is_tried_the_explanation_says_whether_there_are_candidates(priority: int, words: str) -> None:
    """Without pods of lower priority it is never tried."""
    made = scene("a", "b")
    made.run("on-a@a", "on-b@b")
    made.driver.add(*gang(2, priority=priority))
    await made.driver.settle()
    finish(made.chooser.refresh())
    preemption = explained(made, "m0").preemption
    assert preemption is not None
    assert words in preemption.why


async def test_a_gang_that_is_incomplete_preempts_none() -> None:
    """Its explanation says how many pods it needs."""
    made = scene("a")
    made.run("on-a@a")
    made.driver.add(member("m0", size=3, priority=10))
    await made.look()
    preemption = explained(made, "m0").preemption
    assert preemption is not None
    assert preemption.why == "gang default/train needs 3 pods, and fewer exist: create the others"
