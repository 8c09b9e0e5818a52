"""A node's cards are believed as long as its agent gives signs of life."""

import asyncio

import msgspec

from agent import heartbeat
from allocation.names import HAMI_REGISTER, heartbeat_lease
from cluster.metadata import ObjectMeta
from scheduler.cycle import Chosen, Waiting, decide
from scheduler.heartbeats import Heartbeats, Lease
from scheduler.state import State
from tests.scheduler.builders import Clock, lease, node, pod, state, status


def reason(made: State, name: str = "p") -> str:
    """Answer why a GPU pod waits, empty where it does not."""
    decision = decide(made, pod(name, memory=1))
    return decision.note if isinstance(decision, Waiting) else ""


def test_a_silent_agent_takes_no_new_gpu_pods_and_loses_none() -> None:
    """More than the Lease's own duration without a change closes the node: the reason says which, and how long."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1", seconds=40))
    decide(made, pod("before", memory=100))
    clock.now += 40
    assert made.closed() == {}
    clock.now += 1
    assert "agent of node n1 is silent: Lease tranche-system/gpu-n1 was not renewed for more than 40 s" in reason(made)
    assert made.ledger.holding("uid-before") is not None
    assert isinstance(decide(made, pod("no-gpu")), Chosen), "a pod without GPU needs no agent"


def test_the_length_of_a_silence_is_told_in_doublings() -> None:
    """A reason that changed with every second would be written to the API server at every try."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    told = []
    for _ in range(241):
        clock.now += 1
        told.append(made.closed().get("n1", "").rpartition("more than ")[2])
    assert told == [""] * 60 + ["60 s"] * 60 + ["120 s"] * 120 + ["240 s"]


async def test_the_next_heartbeat_brings_a_node_back_and_wakes_who_waits() -> None:
    """Nothing but the Lease's change is needed."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    clock.now += 61
    made.set_pod(pod("waits", memory=1))
    entry = await made.queue.pop()
    decision = decide(made, entry.pod)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 10
    made.set_lease(lease("n1", renewed="2026-01-01T00:01:11.000000Z"))
    async with asyncio.timeout(1):
        assert await made.queue.pop() is entry
    assert isinstance(decide(made, entry.pod), Chosen)


def test_a_lease_is_fresh_when_it_is_first_seen() -> None:
    """Its times are another machine's, and say nothing to a scheduler that has just started."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1", renewed="1999-01-01T00:00:00.000000Z"))
    assert reason(made) == ""


def test_only_a_renewal_is_a_sign_of_life() -> None:
    """Somebody who labels the Lease, or a list that shows it again, does not speak for the agent."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    clock.now += 59
    again = lease("n1")
    again.metadata.resource_version = "2"
    made.set_lease(again)
    clock.now += 2
    assert reason(made)


def test_a_missing_lease_is_missed_after_a_grace() -> None:
    """An agent writes its report first and its Lease then; one that is deleted it may write again."""
    clock = Clock()
    made = state("n1", clock=clock)
    clock.now += 60
    assert made.closed() == {}
    clock.now += 1
    assert "gpu-n1 does not exist for more than 60 s" in reason(made)
    made.set_lease(lease("n1"))
    assert made.closed() == {}
    made.drop_lease(lease("n1"))
    clock.now += 60
    assert made.closed() == {}
    clock.now += 1
    assert "gpu-n1 does not exist" in reason(made)


def test_a_report_that_is_repeated_is_no_sign_of_life() -> None:
    """The grace begins when the report is first seen."""
    clock = Clock()
    made = state("n1", clock=clock)
    clock.now += 50
    made.set_status(status("n1", cards=3))
    clock.now += 11
    assert reason(made)


def test_a_node_that_only_its_annotation_describes_is_not_judged() -> None:
    """HAMi's plugin writes no Lease."""
    clock = Clock()
    made = state(clock=clock)
    card = '{"id":"GPU-a","index":0,"count":4,"devmem":100,"devcore":100,"type":"x","health":true}'
    advertises = {"allocatable": {"cpu": "64", "pods": "110", "nvidia.com/gpu": "4"}}
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {HAMI_REGISTER: f"[{card}]"}}, status=advertises))
    clock.now += 1000
    assert reason(made) == ""


def test_a_node_without_report_is_judged_no_longer() -> None:
    """Who removed our agent and its report may use the node otherwise, whatever Lease is left."""
    clock = Clock()
    beats = Heartbeats(clock=clock)
    beats.expect("n1")
    beats.set_lease(lease("n1"))
    clock.now += 61
    assert set(beats.silences()) == {"n1"}
    beats.pardon("n1")
    assert beats.silences() == {}
    beats.drop_lease(lease("n1"))
    beats.expect("n1")
    assert beats.silences() == {}


def test_other_leases_say_nothing() -> None:
    """The leader's Lease lives in the same namespace."""
    beats = Heartbeats(clock=Clock())
    beats.expect("tranche-scheduler")
    assert not beats.set_lease(Lease(ObjectMeta(name="tranche-scheduler")))
    assert beats._beats.keys() == {"gpu-tranche-scheduler"}


def test_what_the_agent_writes_is_read() -> None:
    """The body of its Lease, as it comes back from the API server."""
    body = heartbeat.lease("n1", identity="agent-1", seconds=30, unix=1.5)
    read = msgspec.convert(body, Lease)
    assert read.metadata.name == heartbeat_lease("n1")
    assert read.spec.holder_identity == "agent-1"
    assert read.spec.lease_duration_seconds == 30
    assert read.spec.renew_time == "1970-01-01T00:00:01.500000Z"
