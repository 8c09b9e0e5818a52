"""What the API server shows is what is counted, in whatever order it comes."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
    assert "default/a" in made.closed("n1")


def test_an_ordinary_pod_closes_nothing() -> None:
    """Pods without GPU are counted for CPU and pods only."""
    made = state("n1")
    made.set_pod(pod("web", node="n1", phase="Running"))
    assert made.closed("n1") == ""
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


def test_a_field_that_is_not_evaluated_holds_the_pod() -> None:
    """It is never placed wrongly; the reason names the field and the way out."""
    made = state("n1")
    claim = pod("a", memory=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    waiting = decide(made, claim)
    assert isinstance(waiting, Waiting)
    assert "spec.volumes[data]" in waiting.note
    assert "extender" in waiting.note


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
    clock.now += 100
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


def test_two_nodes_that_report_one_card_get_no_pods_for_it() -> None:
    """The second report is refused: a card is never given out twice."""
    made = state("n1")
    made.set_node(node("n2"))
    stolen = status("n1")
    stolen.metadata.name = "n2"
    made.set_status(stolen)
    assert made.ledger.nodes == ("n1",)
