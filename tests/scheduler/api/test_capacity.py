"""Capacity is what placing pods one by one until none fits finds, and asking changes nothing."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.reasons import PodReason
from allocation.steps import finish
from allocation.wire.record import encode
from scheduler.api import capacity, capacity_shapes, capacity_slice, capacity_stranded
from scheduler.api.capacity_types import Blame, PlaceCount, ShapeCapacity, Stranded
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claiming_world import ClaimingWorld
from tests.scheduler.support.preferring import PreferringWorld
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of, schedule
from tests.scheduler.support.worlds import World, bound

MANY = 10_000


def counted(made: ClusterState, shape: Pod, *, most: int = MANY, is_over: Any = lambda: False) -> ShapeCapacity:
    """Return the capacity for pods like `shape`."""
    submitted = SubmittedPod(PlannedPod.of(shape, ()), ())
    return finish(capacity.count(cycle_of(made), "shape", submitted, most=most, is_over=is_over))


def placed_one_by_one(made: ClusterState, shape: Pod) -> tuple[Counter[str], str]:
    """Create pods like `shape` until one gets no node; return how many each node got, and why the last got none."""
    nodes = Counter[str]()
    while True:
        metadata = msgspec.structs.replace(
            shape.metadata, name=f"{shape.metadata.name}-{nodes.total()}", uid=f"uid-one-{nodes.total()}"
        )
        created = Pod(metadata, shape.spec, shape.status)
        made.set_pod(created)
        result = finish(schedule(made, created))
        if not isinstance(result, Scheduled):
            assert isinstance(result, Unschedulable)
            return nodes, result.note
        nodes[result.node] += 1
        made.set_pod(bound(created, result), created)


def without_changes(made: ClusterState) -> dict[str, Any]:
    """Return the complete state but for the number of changes, and for nodes on which nothing is used."""
    found = everything(made)
    del found["changes"]
    found["used"] = {node: used for node, used in found["used"].items() if used}
    found["holds"] = sorted(map(repr, made.holds))
    return found


@pytest.mark.parametrize("kind", [World, PreferringWorld, ClaimingWorld])
@given(seed=st.integers(0, 100_000))
def test_capacity_is_what_placing_one_by_one_finds(kind: type[World], seed: int) -> None:
    """The count, in total and by node, and why the next pod does not fit; the state is as before."""
    world = kind(seed)
    shape = world.pod()
    before = without_changes(world.state)
    found = counted(world.state, shape)
    assert without_changes(world.state) == before
    nodes, why = placed_one_by_one(world.state, shape)
    assert {each.name: each.count for each in found.nodes} == nodes
    assert (found.count, found.is_exact) == (nodes.total(), True)
    assert sum(each.count for each in found.models) == found.count
    if not why.startswith(PodReason.MigInstanceAsked):  # for a pod that is only counted no instance is created
        assert found.why == why


def test_a_count_that_is_ended_early_says_so() -> None:
    """At most as many pods as the caller allows, and none after the deadline: then more may fit."""
    made = state("n1", "n2")  # two cards of 1000 MiB and four slots each
    assert (counted(made, pod("a", memory=250)).count, counted(made, pod("a", memory=250)).is_exact) == (16, True)
    limited = counted(made, pod("a", memory=250), most=5)
    assert (limited.count, limited.is_exact, limited.why) == (5, False, "")
    steps = iter(range(100))
    late = counted(made, pod("a", memory=250), is_over=lambda: next(steps) >= 3)
    assert (late.count, late.is_exact) == (3, False)
    now = 0.0
    is_over = capacity.deadline(lambda: now)
    assert not is_over()
    now = capacity.MOST_SECONDS
    assert is_over()


def test_a_quota_that_ends_the_count_before_the_cards_is_named() -> None:
    """By how much, and how many: maxPods, and an amount; without the quota the next pod would fit."""
    made = state("n1")
    without = counted(made, pod("a", memory=250))
    assert (without.count, without.is_limited_by_quota) == (8, False)
    made.quotas.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 1000}}))
    by_amount = counted(made, pod("a", memory=250))
    assert (by_amount.count, by_amount.is_limited_by_quota) == (4, True)
    made.quotas.set_gpu_quota(gpu_quota(total={"maxPods": 3}))
    by_pods = counted(made, pod("a", memory=250))
    assert (by_pods.count, by_pods.is_limited_by_quota) == (3, True)
    assert "GpuQuota q" in by_pods.why
    made.quotas.set_gpu_quota(gpu_quota(total={"maxPods": 8}))
    assert not counted(made, pod("a", memory=250)).is_limited_by_quota


def test_places_are_counted_by_node_and_model() -> None:
    """The largest count first, and by name."""
    made = state("n1", "n2")
    made.set_pod(allocated("b", node="n1", memory=900))
    found = counted(made, pod("a", memory=250))
    assert found.nodes == (PlaceCount("n2", 8), PlaceCount("n1", 4))
    assert found.models == (PlaceCount("", 12),)


def test_a_hold_that_the_copies_took_is_held_again() -> None:
    """For a pod of lower rank that still waits."""
    made, waits = state("n1"), pod("waits", memory=1000, priority=-5)
    made.set_pod(waits)
    (entry,) = made.queue
    placed = finish(cycle_of(made).dry_run(waits)).result
    assert isinstance(placed, Scheduled)
    hold = Hold(waits.uid, entry.key, made.fair_share.pod_rank(waits), "n1", placed.charges, frozenset())
    made.holds.add(hold, waits)
    before = without_changes(made)
    assert counted(made, pod("a", memory=250, priority=7)).count == 8
    assert made.holds.of(waits.uid) is hold
    assert without_changes(made) == before
    assert counted(made, pod("a", memory=250, priority=-7)).count == 4


@given(seed=st.integers(0, 100_000))
def test_the_largest_slice_fits_and_no_larger_one(seed: int) -> None:
    """One MiB or one percent more fits nowhere; the slice itself does, on the node and the model that are named."""
    world = World(seed)
    shape = pod("slice", memory=500)
    found = finish(capacity_slice.largest(cycle_of(world.state), shape))
    if found is None:
        assert counted(world.state, slice_of(1, 0)).count == 0
        return
    assert not counted(world.state, slice_of(found.memory_mib + 1, 0)).count
    assert not counted(world.state, slice_of(found.memory_mib, found.cores + 1)).count
    fitting = counted(world.state, slice_of(found.memory_mib, found.cores))
    assert found.node in {each.name for each in fitting.nodes}
    assert found.model in {each.name for each in fitting.models}


def slice_of(memory: int, cores: int) -> Pod:
    """Return a pod with a slice of one card."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores)}
    return pod("slice", containers=[{"name": "main", "resources": {"limits": limits, "requests": limits}}])


def test_stranded_amounts_are_attributed_to_the_queue_that_uses_what_is_missing() -> None:
    """A card without compute, one without memory, one without slots, and a node without CPU."""
    made = state("n1", "n2", cards=3)
    for name, node_name, cores, memory, card, space in (
        ("a", "n1", 1000, 100, 0, "team"),
        ("b", "n1", 0, 1000, 1, "default"),
        *((f"c{number}", "n1", 10, 10, 2, "team") for number in range(4)),
    ):
        made.set_pod(running(name, node=node_name, cores=cores, memory=memory, card=card, namespace=space))
    assert finish(capacity_stranded.stranded(made)) == (
        Stranded("compute", 1, 900, 0, (Blame("namespace/team", 1, 900, 0),)),
        Stranded("memory", 1, 0, 1000, (Blame("namespace/default", 1, 0, 1000),)),
        Stranded("slots", 1, 960, 960, (Blame("namespace/team", 1, 960, 960),)),
    )
    hungry = pod("hungry", node="n2", phase="Running", namespace="web", schedulerName="default-scheduler")
    hungry.spec.containers[0].resources.requests = {"cpu": "64"}
    made.set_pod(hungry)
    *_, lacking = finish(capacity_stranded.stranded(made))
    assert (lacking.lacks, lacking.cards, lacking.by[0].queue) == ("node", 3, "namespace/web")


def running(name: str, *, node: str, cores: int, memory: int, card: int, namespace: str) -> Pod:
    """Return a pod that runs on a card, with compute in millicards."""
    share = CardShare(f"GPU-{node}-{card}", card, memory, cores)
    annotations = {ALLOCATION: encode(Allocation(node, {"main": (share,)}))}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores // 10)}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    return pod(name, node=node, phase="Running", namespace=namespace, annotations=annotations, containers=containers)


def test_standard_shapes_are_a_whole_card_and_the_slices_that_most_pods_have() -> None:
    """At most three sizes, the most frequent first; for a user of one namespace those of its own pods."""
    made = state("n1", "n2")
    sizes = (100, 100, 100, 200, 200, 300, 50)
    for number, memory in enumerate(sizes):
        name = "n1" if number < 4 else "n2"
        made.set_pod(allocated(f"p{number}", node=name, memory=memory, namespace="team" if memory == 50 else "default"))
    shapes = finish(capacity_shapes.standard(made, "default", own_only=False))
    assert [each.name for each in shapes] == ["whole card", "100 MiB", "200 MiB", "50 MiB"]
    own = finish(capacity_shapes.standard(made, "team", own_only=True))
    assert [each.name for each in own] == ["whole card", "50 MiB"]
    assert own[1].manifests.pod["metadata"]["namespace"] == "team"
