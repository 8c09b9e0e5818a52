"""`simulate` shows that the pods of a gang get nodes together or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from cli.explain.evaluator import SimulatedWorkload
from cli.workloads import expand
from scheduler.state.cluster_state import ClusterState
from tests.cli.explain.test_agreement import TEAM, evaluator, workload
from tests.scheduler.api.test_gang_explanation import still
from tests.scheduler.gang_scheduling.test_all_or_nothing import member
from tests.scheduler.support.builders import namespace, state


def job(pods: int, *, size: int, gang: str = "train") -> dict[str, Any]:
    """Return a Job with pods of a gang that ask for a whole card each."""
    made = workload("Job", of_set={"parallelism": pods, "completions": pods})
    template = made["spec"]["template"]
    template["metadata"]["labels"]["gpu.scheduling/gang"] = gang
    template["metadata"]["annotations"]["gpu.scheduling/gang-min-members"] = str(size)
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = 1000
    return made


def site(cards: int) -> ClusterState:
    """Return a node with some cards."""
    made = state("n1", cards=cards)
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    return made


def simulate(made: ClusterState, document: dict[str, Any], *, every: bool = True) -> SimulatedWorkload:
    """Return what `simulate` shows of a workload."""
    (each,) = expand.of(document)
    return evaluator(made).simulate(each, every=every)


def test_a_job_whose_pods_fit_together_is_placed_as_a_whole() -> None:
    """The cards stay reserved for the next workload."""
    made = site(4)
    _, found = simulate(made, job(4, size=4))
    assert (found.fit, found.nodes, found.unfit) == (4, {"n1": 4}, None)
    assert found.note == f"the pods of gang {TEAM}/train get nodes together: 4 of 4 have one"
    assert (simulate(made, job(1, size=1, gang="next"))[1]).fit == 0


def test_of_a_job_whose_pods_do_not_fit_none_is_placed() -> None:
    """The reason names how many would fit, and nothing stays reserved."""
    made = site(3)
    before = still(made)
    _, found = simulate(made, job(4, size=4))
    assert (found.fit, found.nodes) == (0, {})
    assert found.note == f"the pods of gang {TEAM}/train get nodes together or not at all"
    assert found.unfit is not None
    assert found.unfit.error is not None
    assert found.unfit.error.message.startswith(f"3 of the 4 pods that gang {TEAM}/train needs have a place; pod ")
    assert still(made) == before


def test_a_job_may_be_larger_than_its_gang() -> None:
    """Three of four are enough; the fourth waits, with its own reason."""
    _, found = simulate(site(3), job(4, size=3))
    assert (found.fit, found.nodes) == (3, {"n1": 3})
    assert found.unfit is not None
    assert found.unfit.error is not None
    assert found.unfit.error.message.startswith("no available node")


@pytest.mark.parametrize("every", [True, False])
def test_a_pod_that_does_not_complete_its_gang_is_shown_as_one_more_of_it(*, every: bool) -> None:
    """A warning says that the result is that of the pod alone; the gang counts those that exist, and those only."""
    made = site(4)
    made.set_pod(member("other"))
    before = still(made)
    first, found = simulate(made, job(1, size=4), every=every)
    assert first.warnings[-1] == (
        "4 pods of gang train get nodes together or not at all; the result is that of the pod alone, as one of 2 that"
        " exist then"
    )
    assert first.explanation is not None
    assert first.explanation.gang is not None
    assert (first.explanation.gang.state, first.explanation.gang.waiting) == ("Incomplete", 2)
    assert found.fit == 1
    if not every:
        assert still(made) == before


def test_a_gang_that_needs_no_more_pods_has_no_warning() -> None:
    """A pod without a gang has none either."""
    for document in (job(1, size=1), workload("Job")):
        first, found = simulate(site(2), document, every=False)
        assert not [each for each in first.warnings if "gang" in each]
        assert found.fit == 1
