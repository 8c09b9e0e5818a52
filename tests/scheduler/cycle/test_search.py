"""Which way finds the result: those before the last one do not evaluate every node."""

import pytest

from allocation.allocation import Charge
from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.cycle.search import Attempt, Case
from scheduler.gpu_requirements import GpuRequirements
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.app_pods import app_pod, gpu_binding, settings
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.storage import claim, mounts, volume


def found(made: ClusterState, asks: Pod) -> Attempt:
    """Return what the search finds for a pod."""
    cycle = cycle_of(made)
    requirements = cycle.requirements(asks)
    assert isinstance(requirements, GpuRequirements)
    return finish(cycle._search.find(Case(asks, requirements, made.requirements.headroom(asks))))


def with_all() -> ClusterState:
    """Return three nodes, on one of which an application has a card and a claim its volume."""
    made = state("n1", "n2", "n3", settings=settings("labelled"))
    made.bindings.set(gpu_binding("b", "GPU-n2-0"))
    made.storage.set_volume(volume("pv", node="n2", claim="data", claim_uid="uid-data"))
    made.storage.set_claim(claim("data", volume="pv"))
    return made


@pytest.mark.parametrize(
    ("asks", "path"),
    [
        (app_pod("bound"), "full"),
        (pod("stores", memory=1, volumes=mounts("data")), "full"),
        (pod("plain", memory=1), "cached"),
    ],
    ids=lambda each: each.metadata.name if isinstance(each, Pod) else each,
)
def test_a_short_way_does_not_evaluate_every_node(asks: Pod, path: str) -> None:
    """The cards of its application or its volume are on few nodes, or a ranking has the best one."""
    attempt = found(with_all(), asks)
    assert isinstance(attempt.result, Scheduled)
    assert attempt.result.path == path
    assert attempt.evaluation is None


def test_the_last_way_evaluates_every_node() -> None:
    """A pod that fits nowhere gets the reasons of all."""
    attempt = found(with_all(), pod("large", memory=9999))
    assert isinstance(attempt.result, Unschedulable)
    assert attempt.evaluation is not None
    assert attempt.evaluation.rejections.keys() == {"n1", "n2", "n3"}


def test_a_result_without_holds_of_lower_rank_is_not_that_of_a_kind() -> None:
    """Another pod of the same amounts may have a lower rank, to which these cards are not free."""
    made, asks = state("n1", cards=1), pod("asks", memory=9999, priority=5)
    assert found(made, asks).result.kind is not None  # type: ignore[union-attr]
    low = pod("low", memory=600)
    charges = (Charge("GPU-n1-0", 600, 0, 1),)
    made.holds.add(
        Hold(low.uid, made.fair_share.key(low), made.fair_share.pod_rank(low), "n1", charges, frozenset()), low
    )
    assert found(made, asks).result.kind is None  # type: ignore[union-attr]
