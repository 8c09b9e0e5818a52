"""What the API server shows is what is counted, in whatever order it comes."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import ALLOCATION
from scheduler import messages
from scheduler.cycle import Chosen, Waiting, decide, undo
from scheduler.state import State
from tests.scheduler.builders import Clock, allocated, node, pod, state, status


def used_mib(made: State) -> int:
    """Answer the memory in use everywhere."""
    return int(made.ledger.used[0].sum())


def test_a_bound_pod_holds_what_its_annotation_says() -> None:
    """The annotation counts, not the request."""
    made = state("n1")
    made.set_pod(allocated("a", node="n1", memory=600))
    assert used_mib(made) == 600


def test_a_finished_or_deleted_pod_holds_nothing() -> None:
    """Succeeded, Failed, or gone: its share is free, and being told twice changes nothing."""
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


@given(st.permutations(range(6)))
def test_the_order_of_arrival_does_not_matter(order: list[int]) -> None:
    """Nodes, reports and pods give the same ledger whichever comes first: a restart equals what was before."""
    made = state()
    steps = [
        lambda: made.set_node(node("n1")),
        lambda: made.set_node(node("n2")),
        lambda: made.set_status(status("n1")),
        lambda: made.set_status(status("n2")),
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


def test_a_decision_is_reserved_before_anything_else_can_happen() -> None:
    """Two pods that fit one by one but not together: the second waits, though no Binding has been written."""
    made = state("n1", cards=1)
    first = decide(made, pod("a", memory=600))
    second = decide(made, pod("b", memory=600))
    assert isinstance(first, Chosen)
    assert isinstance(second, Waiting)
    assert "1/1 CardInsufficientMemory(n1)" in second.note


def test_an_undone_decision_leaves_no_trace() -> None:
    """A Binding that failed gives back cards and node resources."""
    made = state("n1")
    before = made.ledger.used.copy()
    one = pod("a", memory=600)
    decide(made, one)
    undo(made, one)
    assert np.array_equal(made.ledger.used, before)
    assert made.fleet.pods_on("n1") == 0


def test_a_late_failure_does_not_free_a_bound_pod() -> None:
    """The watch showed the pod with its node before our request failed: it holds its share."""
    made = state("n1")
    one = pod("a", memory=600)
    chosen = decide(made, one)
    assert isinstance(chosen, Chosen)
    made.set_pod(allocated("a", node="n1", memory=600))
    undo(made, one)
    assert used_mib(made) == 600
    assert made.fleet.pods_on("n1") == 1


def test_an_uncounted_gpu_pod_closes_its_node() -> None:
    """A pod that uses cards nobody knows of: no more GPU pods there until it is gone, and the reason is told."""
    made = state("n1")
    intruder = pod("intruder", memory=100, node="n1", phase="Running")
    made.set_pod(intruder)
    waiting = decide(made, pod("a", memory=100))
    assert isinstance(waiting, Waiting)
    assert "default/intruder" in waiting.note
    made.drop_pod(intruder)
    assert isinstance(decide(made, pod("a", memory=100)), Chosen)


def test_an_unreadable_allocation_closes_its_node() -> None:
    """What cannot be counted is not counted as nothing."""
    made = state("n1")
    broken = allocated("a", node="n1", memory=100)
    broken.metadata.annotations["gpu.scheduling/allocation"] = "{"
    made.set_pod(broken)
    assert "default/a" in made.closed()["n1"]


def test_an_ordinary_pod_closes_nothing() -> None:
    """Pods without GPU are counted for CPU and pods only."""
    made = state("n1")
    made.set_pod(pod("web", node="n1", phase="Running"))
    assert "n1" not in made.closed()
    assert made.fleet.pods_on("n1") == 1


def test_a_static_allocation_is_taken_as_it_is_or_waits() -> None:
    """Its cards are named by who was trusted to: reserved if they are free, waited for if not."""
    made = state("n1", cards=2)
    fixed = allocated("a", node="n1", memory=600, card=1, phase="Pending")
    fixed.spec.node_name = ""
    chosen = decide(made, fixed)
    assert isinstance(chosen, Chosen)
    assert chosen.allocation is not None
    assert chosen.allocation.containers["main"][0].uuid == "GPU-n1-1"
    twin = allocated("b", node="n1", memory=600, card=1, phase="Pending")
    twin.spec.node_name = ""
    waiting = decide(made, twin)
    assert isinstance(waiting, Waiting)
    assert "GPU-n1-1" in waiting.note


async def test_a_pod_that_ends_wakes_who_waits() -> None:
    """The cure reaches the queue."""
    clock = Clock()
    made = state("n1", clock=clock, cards=1)
    runs = allocated("runs", node="n1", memory=900)
    made.set_pod(runs)
    made.set_pod(pod("waits", memory=900))
    entry = await made.queue.pop()
    decision = decide(made, entry.pod)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 10
    made.drop_pod(runs)
    async with asyncio.timeout(1):
        assert (await made.queue.pop()).pod.metadata.name == "waits"
    assert isinstance(decide(made, entry.pod), Chosen)


def test_gates_and_foreign_schedulers_are_respected() -> None:
    """A gated pod, one of another scheduler and one that is being deleted are not ours to decide."""
    made = state("n1")
    made.set_pod(pod("gated", memory=1, schedulingGates=[{"name": "wait"}]))
    made.set_pod(pod("foreign", memory=1, schedulerName="other"))
    leaving = pod("leaving", memory=1)
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.set_pod(leaving)
    assert len(made.queue) == 0
    made.set_pod(pod("gated", memory=1))
    assert len(made.queue) == 1


def test_a_node_that_goes_and_comes_back_finds_its_pods_counted() -> None:
    """Deleted with pods on it, with or without its agent's report: they hold their shares, whatever comes meanwhile."""
    made = state("n1", "n2")
    made.set_pod(allocated("a", node="n1", memory=600))
    assumed = pod("b", memory=300, nodeSelector={"kubernetes.io/hostname": "n1"})
    assert isinstance(decide(made, assumed), Chosen)
    made.drop_node(node("n1"))
    assert "n2" in made.fleet
    assert "n1" not in made.fleet
    made.drop_status(status("n1"))
    assert made.ledger.nodes == ("n2",)
    assert {each.uid for each in made.ledger.holdings("n1")} == {"uid-a", "uid-b"}
    undo(made, assumed)
    made.set_pod(allocated("c", node="n1", memory=100))
    elsewhere = decide(made, pod("d", memory=1))
    assert isinstance(elsewhere, Chosen)
    assert elsewhere.node == "n2"
    made.set_node(node("n1"))
    made.set_status(status("n1"))
    row = made.ledger.row("n1")
    assert made.ledger.used[0, row].tolist()[:2] == [700, 0]
    assert made.fleet.pods_on("n1") == 2
    made.drop_pod(allocated("a", node="n1", memory=600))
    assert made.ledger.used[0, row].tolist()[:2] == [100, 0]


def test_a_node_that_is_gone_is_no_choice() -> None:
    """Its agent may still report for it."""
    made = state("n1")
    made.drop_node(node("n1"))
    waiting = decide(made, pod("a", memory=1))
    assert isinstance(waiting, Waiting)
    assert waiting.note == "no available node, the cluster has none"


async def is_woken(made: State, clock: Clock, change: Callable[[], None]) -> bool:
    """Whether the pod that waits in `made`, which takes it nowhere, is tried again because of `change`."""
    entry = await made.queue.pop()
    decision = decide(made, entry.pod)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 10
    change()
    popping = asyncio.create_task(made.queue.pop())
    for _ in range(5):
        await asyncio.sleep(0)
    if not popping.done():
        popping.cancel()
        return False
    return popping.result() is entry


async def test_a_kubelets_sign_of_life_wakes_nobody() -> None:
    """Most updates of a node change nothing that is decided by; a thousand nodes bring several in a second."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_pod(pod("waits", memory=9999))
    alive, labelled = node("n1"), node("n1")
    alive.metadata.resource_version = "2"
    alive.metadata.annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    labelled.metadata.labels = {"new": "label"}
    assert not await is_woken(made, clock, lambda: made.set_node(alive, node("n1")))
    made = state("n1", clock=clock)
    made.set_pod(pod("waits", memory=9999))
    assert await is_woken(made, clock, lambda: made.set_node(labelled, node("n1")))


async def test_a_pod_that_shrinks_or_can_be_counted_again_wakes_who_waits() -> None:
    """A resize, or an annotation that is put right, may leave more for others."""
    clock = Clock()
    made = state("n1", clock=clock)
    bad = allocated("a", node="n1", memory=100)
    bad.metadata.annotations = {ALLOCATION: "{"}
    made.set_pod(bad)
    made.set_pod(pod("waits", memory=1))
    assert await is_woken(made, clock, lambda: made.set_pod(allocated("a", node="n1", memory=100), bad))
    made = state("n1", clock=clock)
    large = pod("large", node="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "60"}}}])
    small = pod("large", node="n1", containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    made.set_pod(large)
    made.set_pod(pod("waits", containers=[{"name": "main", "resources": {"requests": {"cpu": "10"}}}]))
    assert await is_woken(made, clock, lambda: made.set_pod(small, large))


def test_a_pods_granted_resources_are_a_change_that_counts() -> None:
    """Its phase alone is none."""
    made = state("n1")
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    before = pod("a", node="n1", **spec)
    made.set_pod(before)
    granted = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]}
    made.set_pod(pod("a", node="n1", phase="Running", status=granted, **spec), before)
    big = pod("b", containers=[{"name": "main", "resources": {"requests": {"cpu": "5"}}}])
    assert made.fleet.sort(big).refusals == {"n1": "Insufficient cpu"}


def test_a_message_has_an_end() -> None:
    """A thousand silent agents are a thousand reasons; an event takes a kilobyte."""
    reasons = {f"n{index:03}": f"agent of node n{index:03} is silent" for index in range(1000)}
    note = messages.no_fit({}, reasons)
    assert note.startswith("no available node, 1000 nodes do not meet: 1 nodes agent of node n000 is silent(n000)")
    assert note.endswith("; and 990 more reasons")
    assert len(note) < 1024
