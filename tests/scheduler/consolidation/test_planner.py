"""Which pods are moved, and where to: as few as possible, none that must not be, and each has room."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import CHARGED_TO, EVICTABLE, MODE, PREEMPTION_PROTECTION
from allocation.settings import AllocationSettings
from allocation.steps import finish
from scheduler.consolidation.planner import NoPlan, Plan
from tests.scheduler.consolidation.scene import Scene, owned
from tests.scheduler.preemption.test_choice import budget
from tests.scheduler.support.builders import allocated, node, pod
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.claims import running as claimed
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.preempting import planner_of
from tests.scheduler.support.quotas import gpu_quota

if TYPE_CHECKING:
    from scheduler.objects import Pod

NOTHING = NoPlan("moving pods elsewhere would not make any node fit")


def planned(scene: Scene, waiting: Pod, *budgets: Any, **settings: Any) -> Plan | NoPlan:
    """Return the plan for a pod."""
    return finish(planner_of(scene.state, *budgets, **settings).plan(waiting))


def moves(plan: Plan | NoPlan) -> list[str]:
    """Return which pods are moved, and where to."""
    assert isinstance(plan, Plan), plan
    return [f"{each.moved.pod.metadata.name}->{each.node}" for each in plan.moves]


def fragmented(**more: Any) -> tuple[Scene, Pod]:
    """Return two nodes with a free card each, a pod on the first that has `more`, and one that wants two cards."""
    scene = Scene("a", "b")
    scene.run("one@a", **more)
    scene.run("two@b", kind="DaemonSet")
    return scene, scene.wait()


def test_the_pod_that_can_be_moved_is_moved() -> None:
    """To where there is room."""
    scene, waiting = fragmented()
    assert moves(planned(scene, waiting)) == ["one->b"]


@pytest.mark.parametrize(("limit", "is_moved"), [(1000, True), (999, False)])
def test_what_a_pod_gives_back_of_its_quota_is_for_its_successor(limit: int, *, is_moved: bool) -> None:
    """It is moved although its quota is exhausted, unless the quota was lowered below what it has."""
    scene, waiting = fragmented(namespace="team")
    scene.state.limits.set_gpu_quota(gpu_quota(namespace="team", total={"limits": {"nvidia.com/gpumem": limit}}))
    assert isinstance(planned(scene, waiting), Plan) == is_moved


@pytest.mark.parametrize(
    ("why", "more"),
    [
        ("nothing creates it again", {"kind": ""}),
        ("a Job counts it as a failure", {"kind": "Job"}),
        ("it says so", {"annotations": {EVICTABLE: "false"}}),
        ("another scheduler places it", {"schedulerName": "other"}),
        ("it has a higher priority", {"priority": 1}),
        ("it takes too long to end", {"terminationGracePeriodSeconds": 10**9}),
        ("it ends already", {"deleted": "2026-01-01T01:00:00Z"}),
        ("it is protected", {"annotations": {PREEMPTION_PROTECTION: "2h"}, "created": "2026-01-01T00:30:00Z"}),
        ("it is of the system", {"namespace": "kube-system"}),
        ("only its own node has its label", {"nodeSelector": {"kubernetes.io/hostname": "a"}}),
    ],
)
def test_pods_that_stay(why: str, more: dict[str, Any]) -> None:
    """Each for its own reason, with all others like that of the pod that is moved."""
    scene = Scene("a", "b")
    annotations = more.pop("annotations", {})
    kind = more.pop("kind", "ReplicaSet")
    running = owned(allocated("one", node="a", memory=1000, **more), kind=kind)
    running.metadata.annotations.update(annotations)
    if not kind:
        running.metadata.owner_references = ()
    scene.state.set_pod(running)
    scene.run("two@b", kind="DaemonSet")
    assert planned(scene, scene.wait()) == NOTHING, why


def test_pods_that_are_handed_over_stay() -> None:
    """kube-scheduler would choose where the next one goes."""
    scene, waiting = fragmented(schedulerName="tranche-claims")
    assert moves(planned(scene, waiting)) == ["one->b"]
    scene.state.settings = AllocationSettings(resource_claims="hand-over")
    assert planned(scene, waiting) == NOTHING


def test_a_job_whose_pod_says_that_it_may_be_moved_is_moved() -> None:
    """It has a controller that creates another one."""
    scene = Scene("a", "b")
    running = owned(allocated("one", node="a", memory=1000), kind="Job")
    running.metadata.annotations[EVICTABLE] = "true"
    scene.state.set_pod(running)
    scene.run("two@b", kind="DaemonSet")
    assert moves(planned(scene, scene.wait())) == ["one->b"]


def test_budgets_are_kept() -> None:
    """One that allows nothing keeps its pods; one that allows one pod lets one go."""
    scene, waiting = fragmented(labels={"app": "a"})
    assert planned(scene, waiting, budget("none", allowed=0, app="a")) == NOTHING
    assert moves(planned(scene, waiting, budget("one", allowed=1, app="a"))) == ["one->b"]


def test_the_priority_that_may_be_moved_is_a_setting() -> None:
    """But no pod is moved for one that is less important."""
    scene, waiting = fragmented(priority=5)
    assert planned(scene, waiting, highest_priority=5) == NOTHING
    important = scene.wait("important", priority=5)
    assert planned(scene, important, highest_priority=4) == NOTHING
    assert moves(planned(scene, important, highest_priority=5)) == ["one->b"]


def test_pods_run_for_as_long_as_their_queue_says() -> None:
    """The pods of the scene began an hour ago."""
    scene, waiting = fragmented()
    scene.state.drop_pod(scene.driver.running["one"])
    running = owned(allocated("one", node="a", memory=1000))
    running.metadata.annotations[CHARGED_TO] = "calm"
    scene.state.set_pod(running)
    for seconds, found in ((3600, True), (3601, False)):
        scene.state.limits.set_queue(gpu_queue("calm", preemption={"minRuntimeSeconds": seconds}))
        assert isinstance(planned(scene, waiting), Plan) == found


def test_no_budget_loses_more_pods_than_it_allows() -> None:
    """Of two pods that would have to go, one may."""
    scene = Scene("a", "b")
    scene.run("one@a", "two@a", memory=500, labels={"app": "a"})
    scene.run("three@b", kind="DaemonSet")
    waiting = scene.wait()
    assert planned(scene, waiting, budget("one", allowed=1, app="a")) == NOTHING
    assert len(moves(planned(scene, waiting, budget("two", allowed=2, app="a")))) == 2
    rigid = budget("rigid", allowed=2, fields={"minAvailable": "100%"}, app="a")
    assert planned(scene, waiting, rigid) == NOTHING
    twice = [budget(name, allowed=2, app="a") for name in ("first", "second")]
    assert planned(scene, waiting, *twice) == NOTHING


@pytest.mark.parametrize(
    ("why", "more"),
    [
        ("it is held until it changes", {"labels": {f"label-{number}": "a" for number in range(65)}}),
        ("it is held until it changes", {"resourceClaims": [{"name": "a"}]}),
        ("it requests no GPU", {"containers": [{"name": "main"}]}),
        ('metadata.annotations["nvidia.com/vgpu-mode"] holds', {"annotations": {MODE: "none"}}),
    ],
)
def test_pods_for_which_none_is_moved(why: str, more: dict[str, Any]) -> None:
    """Each for its own reason, which is said."""
    scene, _ = fragmented()
    found = planned(scene, scene.wait("asks", **more))
    assert isinstance(found, NoPlan)
    assert found.why.startswith(why)


def test_none_is_moved_for_mig_instances() -> None:
    """They would have to be created."""
    scene, _ = fragmented()
    given = claim("instances", exclusivity="MIG")
    scene.state.set_claim(given)
    waiting = claiming("asks", given)
    scene.driver.add(waiting)
    assert planned(scene, waiting) == NoPlan("it requests MIG instances")


def test_pods_with_a_claim_stay() -> None:
    """Another object names what they have."""
    scene, waiting = fragmented()
    given = claim("own", exclusivity="Exclusive")
    scene.state.set_claim(given)
    scene.state.drop_pod(scene.driver.running["one"])
    scene.state.set_pod(owned(claimed("one", given, node="a")))
    assert planned(scene, waiting) == NOTHING


async def test_none_is_moved_for_a_pod_that_has_cards_held() -> None:
    """It waits for these."""
    scene, waiting = fragmented()
    await scene.driver.settle()
    assert isinstance(await scene.consolidator.begin(waiting), Plan)
    assert planned(scene, waiting) == NoPlan("cards are held for it already")


def test_pods_that_end_already_are_awaited() -> None:
    """Together with those that are moved."""
    scene = Scene("a", "b")
    scene.run("one@a")
    scene.run("ends@a/1", deleted="2026-01-01T01:00:00Z")
    scene.run("two@b", kind="DaemonSet")
    plan = planned(scene, scene.wait())
    assert moves(plan) == ["one->b"]
    assert isinstance(plan, Plan)
    assert plan.leaving == {"uid-ends"}


def test_only_the_first_nodes_are_tried() -> None:
    """Those where the least has to become free."""
    scene = Scene("a", "b", "c")
    scene.run("little@a", memory=100, kind="DaemonSet")
    scene.run("much@b", memory=500)
    scene.run("more@c", memory=600, kind="DaemonSet")
    waiting = scene.wait()
    assert finish(planner_of(scene.state).plan(waiting, most_nodes=1)) == NOTHING
    assert moves(finish(planner_of(scene.state).plan(waiting, most_nodes=2))) in (["much->a"], ["much->c"])


def test_as_few_pods_as_possible_are_moved() -> None:
    """Where one is enough, two stay."""
    scene = Scene("a", "b", "c")
    scene.run("one@a", "two@a", memory=400)
    scene.run("three@b", memory=400)
    scene.run("four@c")
    assert moves(planned(scene, scene.wait())) == ["three->a"]


def test_a_node_takes_several_pods_if_it_has_room_for_all() -> None:
    """And no more, by its cards, its CPU and its host ports."""
    scene = Scene("a", "b")
    scene.run("one@a", "two@a", memory=500)
    scene.run("three@b", kind="DaemonSet")
    assert moves(planned(scene, scene.wait())) == ["one->b", "two->b"]
    scene.state.set_node(node("b", status={"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "2"}}))
    assert planned(scene, scene.wait()) == NOTHING
    scene.state.set_node(node("b"))
    for name in ("one", "two"):
        running = owned(allocated(name, node="a", memory=500, containers=[with_port(500)]))
        scene.state.set_pod(running, scene.driver.running[name])
    assert planned(scene, scene.wait()) == NOTHING


def with_port(memory: int) -> dict[str, Any]:
    """Return a container with a host port."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    return {
        "name": "main",
        "resources": {"limits": limits, "requests": limits},
        "ports": [{"hostPort": 80, "protocol": "TCP"}],
    }


def test_if_a_pod_has_no_place_others_are_moved() -> None:
    """The cheapest set may have one that fits only where it is."""
    scene = Scene("a", "b", cards=2)
    stays = owned(
        allocated(
            "stays", node="a", memory=900, created="2026-01-01T00:50:00Z", nodeSelector={"kubernetes.io/hostname": "a"}
        )
    )
    scene.state.set_pod(stays)
    scene.run("goes@a/1", memory=900)
    scene.run("fixed@b", kind="DaemonSet")
    large = pod("large", memory=950)
    scene.run("filler@b/1", memory=100, kind="DaemonSet")
    scene.driver.add(large)
    assert moves(planned(scene, large)) == ["goes->b"]


def test_no_more_pods_are_moved_than_the_setting_says() -> None:
    """Even where more would help."""
    scene = Scene("a", "b")
    scene.run("one@a", "two@a", memory=500)
    scene.run("three@b", kind="DaemonSet")
    waiting = scene.wait()
    assert planned(scene, waiting, most_moves=1) == NOTHING


def test_a_pod_that_fits_moves_nobody() -> None:
    """It is only not placed yet."""
    scene = Scene("a", "b")
    scene.run("one@a")
    assert planned(scene, scene.wait()) == NoPlan("it fits without")


def world(seed: int) -> Scene:
    """Return a small fleet with pods of many sizes, of which some may be moved."""
    chance = random.Random(seed)  # noqa: S311 -- not a secret
    nodes = [f"n{number}" for number in range(chance.randint(2, 4))]
    scene = Scene(*nodes, after_seconds=0)
    for number in range(chance.randint(3, 14)):
        kind = chance.choice(("ReplicaSet", "ReplicaSet", "ReplicaSet", "DaemonSet"))
        small = owned(pod(f"p{number}", memory=chance.choice((200, 400, 500, 700, 1000))), kind=kind)
        if chance.random() < 0.2:
            small.spec.node_selector = {"kubernetes.io/hostname": chance.choice(nodes)}
        scene.driver.add(small)
    return scene


@given(seed=st.integers(0, 2**32))
async def test_a_plan_that_is_carried_out_frees_what_it_promises(seed: int) -> None:
    """With no more evictions than it has moves, each pod has a node again, and the pod that waits has its own."""
    scene = world(seed)
    placed = set(await scene.driver.settle())
    chance = random.Random(seed)  # noqa: S311 -- not a secret
    for name in sorted(placed):  # pods end, and leave holes
        if chance.random() < 0.4:
            scene.driver.end(name)
            placed.remove(name)
    for entry in list(scene.state.queue):
        scene.state.drop_pod(entry.pod)
    waiting = scene.wait() if chance.random() < 0.7 else pod("large", memory=chance.choice((600, 900)))
    scene.driver.add(waiting)
    if await scene.driver.settle():
        return  # it fits without
    before = {name: each.spec.node_name for name, each in scene.driver.running.items()}
    plan = planned(scene, waiting)
    assert {name: each.spec.node_name for name, each in scene.driver.running.items()} == before
    await scene.look()
    begun = scene.held()
    assert bool(begun) == isinstance(plan, Plan)
    if isinstance(plan, NoPlan):
        return
    for _ in range(6 * len(plan.moves) + 6):
        await scene.look(seconds=10)
        for name in [each for each in scene.evictor.evicted if each in scene.driver.running]:
            scene.ends(name)
    assert scene.ended() == "placed"
    assert scene.node_of("large") == plan.node
    assert len(scene.evictor.evicted) == len(plan.moves)
    assert len(scene.driver.running) == len(before) + 1, "each pod has a node"
    assert scene.held() == []
