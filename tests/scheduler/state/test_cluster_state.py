"""The state follows the objects of the API server, in whatever order they arrive."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import ALLOCATION
from allocation.reasons import NodeReason, NodeRejection
from allocation.settings import AllocationSettings
from allocation.steps import finish
from scheduler.cycle import messages
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Node
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, allocated, node, pod, state, status
from tests.scheduler.support.popping import due
from tests.scheduler.support.rejections import texts
from tests.scheduler.support.scheduling import forget, schedule


def used_mib(made: ClusterState) -> int:
    """Return the memory in use on all cards."""
    return int(made.ledger.used[0].sum())


def test_a_bound_pod_holds_what_its_annotation_says() -> None:
    """The annotation counts, not the request."""
    made = state("n1")
    made.set_pod(allocated("a", node="n1", memory=600))
    assert used_mib(made) == 600


def test_a_finished_or_deleted_pod_holds_nothing() -> None:
    """Its share is free after it succeeded, failed or was deleted; a repeated event changes nothing."""
    made = state("n1")
    for phase in ("Succeeded", "Failed"):
        made.set_pod(allocated("a", node="n1", memory=600))
        made.set_pod(allocated("a", node="n1", memory=600, phase=phase))
        assert used_mib(made) == 0
    running = allocated("b", node="n1", memory=600)
    made.set_pod(running)
    made.drop_pod(running)
    made.drop_pod(running)
    assert used_mib(made) == 0


@pytest.mark.parametrize("has_allocation", [True, False])
def test_a_node_is_drained_when_its_last_pod_is_gone(*, has_allocation: bool) -> None:
    """Also one that is not counted, which may use any card."""
    made = state("n1")
    last = allocated("a", node="n1", memory=600) if has_allocation else pod("a", node="n1", memory=600)
    made.set_pod(last)
    reported = status("n1")
    assert reported.status is not None
    reported.status.allocator, reported.status.drain = "draining", "d"
    made.agent_reports.set(reported)
    assert made.node_allocators.drained() == []
    made.drop_pod(last)
    assert [each.node for each in made.node_allocators.drained()] == ["n1"]


@given(st.permutations(range(6)))
def test_the_order_of_arrival_does_not_matter(order: list[int]) -> None:
    """Nodes, reports and pods give the same ledger in any order, so a restart does, too."""
    made = state()
    steps = [
        lambda: made.set_node(node("n1")),
        lambda: made.set_node(node("n2")),
        lambda: made.agent_reports.set(status("n1")),
        lambda: made.agent_reports.set(status("n2")),
        lambda: made.set_pod(allocated("a", node="n1", memory=600)),
        lambda: made.set_pod(allocated("b", node="n2", memory=300, card=1)),
    ]
    for index in order:
        steps[index]()
    expected = state("n1", "n2")
    expected.set_pod(allocated("a", node="n1", memory=600))
    expected.set_pod(allocated("b", node="n2", memory=300, card=1))
    for name in ("n1", "n2"):
        mine, other = made.ledger.row(name), expected.ledger.row(name)
        assert np.array_equal(made.ledger.used[:, mine], expected.ledger.used[:, other])


def test_a_decision_is_reserved_before_the_next_one() -> None:
    """Two pods fit one by one but not together: the second waits, although no Binding has been written."""
    made = state("n1", cards=1)
    first = finish(schedule(made, pod("a", memory=600)))
    second = finish(schedule(made, pod("b", memory=600)))
    assert isinstance(first, Scheduled)
    assert isinstance(second, Unschedulable)
    assert "1/1 CardInsufficientMemory(n1)" in second.note


def test_a_forgotten_decision_leaves_no_trace() -> None:
    """A failed Binding releases cards and node resources."""
    made = state("n1")
    before = made.ledger.used.copy()
    one = pod("a", memory=600)
    finish(schedule(made, one))
    forget(made, one)
    assert np.array_equal(made.ledger.used, before)
    assert made.node_cache.pods_on("n1") == 0


def test_a_late_failure_does_not_release_a_bound_pod() -> None:
    """The watch showed the pod with its node before the request failed: the pod keeps its share."""
    made = state("n1")
    one = pod("a", memory=600)
    chosen = finish(schedule(made, one))
    assert isinstance(chosen, Scheduled)
    made.set_pod(allocated("a", node="n1", memory=600))
    forget(made, one)
    assert used_mib(made) == 600
    assert made.node_cache.pods_on("n1") == 1


def test_an_uncounted_gpu_pod_closes_its_node() -> None:
    """No more GPU pods are placed there until the pod is deleted, and the reason says so."""
    made = state("n1")
    intruder = pod("intruder", memory=100, node="n1", phase="Running")
    made.set_pod(intruder)
    waiting = finish(schedule(made, pod("a", memory=100)))
    assert isinstance(waiting, Unschedulable)
    assert "UncountedPod: a pod runs here uncounted" in waiting.note
    assert "intruder" not in waiting.note  # readers of the waiting pod may have no rights in other namespaces
    made.drop_pod(intruder)
    assert isinstance(finish(schedule(made, pod("a", memory=100))), Scheduled)


def test_an_uncounted_pod_is_reported_once() -> None:
    """Its kubelet updates its status repeatedly; a count of 0 with memory is a request that cannot be counted."""
    reported: list[tuple[str, str]] = []
    make_queue = partial(SchedulingQueue, clock=Clock(), first_backoff=1.0, longest_backoff=8.0)
    made = ClusterState(
        settings=AllocationSettings(),
        make_queue=make_queue,
        clock=Clock(),
        on_uncounted=lambda intruder, why: reported.append((str(intruder), why)),
    )
    zero = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "0", "nvidia.com/gpumem": "100"}}}
    for phase in ("Pending", "Running"):
        made.set_pod(pod("intruder", node="n1", phase=phase, containers=[zero]))
    ((name, reason),) = reported
    assert name == "default/intruder"
    assert "needs at least one GPU" in reason
    assert "n1" in made.closed_nodes.now()


def test_an_unreadable_allocation_closes_its_node() -> None:
    """It is not counted as an empty allocation."""
    made = state("n1")
    broken = allocated("a", node="n1", memory=100)
    broken.metadata.annotations["gpu.scheduling/allocation"] = "{"
    made.set_pod(broken)
    assert "default/a" in made.closed_nodes.now()["n1"].message


def test_a_pod_without_gpu_closes_no_node() -> None:
    """Pods without a GPU count for CPU, memory and pod slots only."""
    made = state("n1")
    made.set_pod(pod("web", node="n1", phase="Running"))
    assert "n1" not in made.closed_nodes.now()
    assert made.node_cache.pods_on("n1") == 1


def test_a_static_allocation_is_reserved_unchanged_or_waits() -> None:
    """A trusted identity named its cards: they are reserved if they are free, else the pod waits."""
    made = state("n1", cards=2)
    fixed = allocated("a", node="n1", memory=600, card=1, phase="Pending")
    fixed.spec.node_name = ""
    chosen = finish(schedule(made, fixed))
    assert isinstance(chosen, Scheduled)
    assert chosen.allocation is not None
    assert chosen.allocation.containers["main"][0].uuid == "GPU-n1-1"
    twin = allocated("b", node="n1", memory=600, card=1, phase="Pending")
    twin.spec.node_name = ""
    waiting = finish(schedule(made, twin))
    assert isinstance(waiting, Unschedulable)
    assert "GPU-n1-1" in waiting.note


async def test_a_pod_that_ends_makes_waiting_pods_active() -> None:
    """The queue is notified of the event."""
    clock = Clock()
    made = state("n1", clock=clock, cards=1)
    runs = allocated("runs", node="n1", memory=900)
    made.set_pod(runs)
    made.set_pod(pod("waits", memory=900))
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    made.drop_pod(runs)
    async with asyncio.timeout(10):
        assert (await made.queue.pop()).pod.metadata.name == "waits"
    assert isinstance(finish(schedule(made, entry.pod)), Scheduled)


def test_gated_foreign_and_terminating_pods_are_not_queued() -> None:
    """A pod whose gates are removed is queued."""
    made = state("n1")
    made.set_pod(pod("gated", memory=1, schedulingGates=[{"name": "wait"}]))
    made.set_pod(pod("foreign", memory=1, schedulerName="other"))
    leaving = pod("leaving", memory=1)
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.set_pod(leaving)
    assert len(made.queue) == 0
    made.set_pod(pod("gated", memory=1))
    assert len(made.queue) == 1


def test_a_node_that_is_deleted_and_created_again_has_its_pods_counted() -> None:
    """With or without the report of its agent, its pods keep their shares, whatever changes meanwhile."""
    made = state("n1", "n2")
    made.set_pod(allocated("a", node="n1", memory=600))
    assumed = pod("b", memory=300, nodeSelector={"kubernetes.io/hostname": "n1"})
    assert isinstance(finish(schedule(made, assumed)), Scheduled)
    made.drop_node(node("n1"))
    assert "n2" in made.node_cache
    assert "n1" not in made.node_cache
    made.agent_reports.drop(status("n1"))
    assert made.ledger.nodes == ("n2",)
    assert {each.uid for each in made.ledger.reservations("n1")} == {"uid-a", "uid-b"}
    forget(made, assumed)
    made.set_pod(allocated("c", node="n1", memory=100))
    elsewhere = finish(schedule(made, pod("d", memory=1)))
    assert isinstance(elsewhere, Scheduled)
    assert elsewhere.node == "n2"
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1"))
    row = made.ledger.row("n1")
    assert made.ledger.used[0, row].tolist()[:2] == [700, 0]
    assert made.node_cache.pods_on("n1") == 2
    made.drop_pod(allocated("a", node="n1", memory=600))
    assert made.ledger.used[0, row].tolist()[:2] == [100, 0]


def test_a_deleted_node_takes_no_pods() -> None:
    """Its agent may still report for it."""
    made = state("n1")
    made.drop_node(node("n1"))
    waiting = finish(schedule(made, pod("a", memory=1)))
    assert isinstance(waiting, Unschedulable)
    assert waiting.note == "no available node, NoNode: the cluster has none"


async def becomes_active(made: ClusterState, clock: Clock, change: Callable[[], None]) -> bool:
    """Whether the unschedulable pod in `made` becomes active because of `change`."""
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    change()
    return await due(made.queue) is entry


async def test_a_heartbeat_of_a_kubelet_makes_no_pod_active() -> None:
    """Most updates of nodes change nothing that scheduling depends on; a thousand nodes send several per second."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_pod(pod("waits", memory=9999))
    alive, labelled = node("n1"), node("n1")
    alive.metadata.resource_version = "2"
    alive.metadata.annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    labelled.metadata.labels = {"new": "label"}
    assert not await becomes_active(made, clock, lambda: made.set_node(alive, node("n1")))
    made = state("n1", clock=clock)
    made.set_pod(pod("waits", memory=1, nodeSelector={"new": "label"}))
    assert await becomes_active(made, clock, lambda: made.set_node(labelled, node("n1")))


async def test_a_pod_that_shrinks_or_is_counted_again_makes_waiting_pods_active() -> None:
    """A resize or a corrected annotation may leave more for others."""
    clock = Clock()
    made = state("n1", clock=clock)
    bad = allocated("a", node="n1", memory=100)
    bad.metadata.annotations = {ALLOCATION: "{"}
    made.set_pod(bad)
    made.set_pod(pod("waits", memory=1))
    assert await becomes_active(made, clock, lambda: made.set_pod(allocated("a", node="n1", memory=100), bad))
    made = state("n1", clock=clock)
    large = pod("large", node="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "60"}}}])
    small = pod("large", node="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    made.set_pod(large)
    made.set_pod(pod("waits", containers=[{"name": "main", "resources": {"requests": {"cpu": "10"}}}]))
    assert await becomes_active(made, clock, lambda: made.set_pod(small, large))


def test_a_change_of_granted_resources_counts() -> None:
    """A change of the phase alone does not."""
    made = state("n1")
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    before = pod("a", node="n1", **spec)
    made.set_pod(before)
    granted = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]}
    made.set_pod(pod("a", node="n1", phase="Running", status=granted, **spec), before)
    big = pod("b", containers=[{"name": "main", "resources": {"requests": {"cpu": "5"}}}])
    assert texts(finish(made.node_filter.filter(big)).rejections) == {"n1": "Insufficient cpu"}


def test_messages_have_a_limited_length() -> None:
    """A thousand silent agents give a thousand reasons; an event may have a kilobyte."""
    messages_of = {f"n{index:03}": f"agent of node n{index:03} is silent" for index in range(1000)}
    silent = {name: NodeRejection(NodeReason.AgentSilent, message) for name, message in messages_of.items()}
    note = finish(messages.no_fit({}, silent))
    assert note.startswith(
        "no available node, 1000 nodes do not meet: 1 node AgentSilent: agent of node n000 is silent(n000)"
    )
    assert note.endswith("; and 990 more reasons")
    assert len(note) < 1024


def test_nodes_without_cards_are_not_evaluated_for_gpu_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of them is named together if no node takes the pod."""
    made = state("n1")
    for number in range(100):
        made.set_node(node(f"bare-{number:02}"))
    evaluated: list[str] = []
    filter_node = made.node_filter._rejection

    def rejection(wants: Any, node: Node, *gone: Any) -> NodeRejection | None:
        evaluated.append(node.metadata.name)
        return filter_node(wants, node, *gone)

    monkeypatch.setattr(made.node_filter, "_rejection", rejection)
    decision = finish(schedule(made, pod("a", memory=5000)))
    assert isinstance(decision, Unschedulable)
    assert set(evaluated) == {"n1"}
    assert "100 nodes NodeUnregistered" in decision.note
    assert {"NodeUnregistered", "CardInsufficientMemory"} <= decision.reasons
