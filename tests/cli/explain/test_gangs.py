"""`explain` shows whether the gang of a pod would get nodes together."""

import argparse

from cli.explain.explain import text
from cli.explain.local_evaluator import LocalEvaluator
from cli.installation.rules import Rules
from cli.liveness.liveness import Liveness
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.gang_scheduling.test_all_or_nothing import WHOLE, member
from tests.scheduler.support.builders import allocated, pod, state

ALIVE = Liveness(installed=True, parts=())
SHOWN = argparse.Namespace(no_headers=False, output="table", node="")


def explained(made: ClusterState, asked: Pod, *others: Pod) -> list[str]:
    """Return the lines of an explanation; the API server has `others` in the namespace of the pod."""
    evaluator = LocalEvaluator(
        made,
        Rules(),
        ALIVE,
        budgets=DisruptionBudgets(),
        namespace="default",
        cards_of=(),
        pods_of=lambda _: [asked, *others],
    )
    return text(evaluator.explain(asked), SHOWN).splitlines()


def test_the_first_member_without_a_place_is_named() -> None:
    """The other pods of the namespace are read, which wait as well: the state has no pods without a node."""
    lines = explained(state("n1", cards=3), *(member(f"m{index}") for index in range(4)), pod("other", memory=WHOLE))
    start = "pod default/m0 waits: 3 of the 4 pods that gang default/train needs have a place; pod default/m3: no avai"
    assert lines[0].startswith(start)
    assert "gang: train: Waiting, needs 4, 0 placed, 4 waiting; 3 of 4 members fit" in lines
    assert any(line.startswith("gang member m3: no available node") for line in lines)


def test_a_gang_that_fits_says_so() -> None:
    """No member is named, and the pod has its own place."""
    lines = explained(state("n1", cards=4), *(member(f"m{index}") for index in range(4)))
    assert lines[0].startswith("pod default/m0 would go to n1, card ")
    assert "gang: train: Waiting, needs 4, 0 placed, 4 waiting; 4 of 4 members fit" in lines
    assert not any(line.startswith("gang member") for line in lines)


def test_a_pod_without_a_gang_has_no_line_about_one() -> None:
    """And no pods are read for it."""
    assert not any(line.startswith("gang") for line in explained(state("n1"), pod("a", memory=9)))


def test_a_running_member_has_a_line_without_a_rehearsal() -> None:
    """It has what it needs; the others are counted."""
    runs = allocated("m0", node="n1", memory=9, labels={"gpu.scheduling/gang": "train"})
    runs.metadata.annotations["gpu.scheduling/gang-min-members"] = "2"
    made = state("n1")
    made.set_pod(runs)
    assert "gang: train: Partial, needs 2, 1 placed, 1 waiting" in explained(made, runs, member("m1", size=2))
