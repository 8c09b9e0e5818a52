"""A node takes GPU pods only while its agent renews its Lease."""

import asyncio
import math

import msgspec
import pytest

from agent.publishing import publisher
from allocation.names import HAMI_REGISTER, heartbeat_lease, legacy_heartbeat_lease
from allocation.steps import finish
from cluster.lease import Lease, LeaseMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.state.agent_leases import AgentLeases
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, lease, node, pod, state, status
from tests.scheduler.support.leasing import lease_of
from tests.scheduler.support.rejections import texts
from tests.scheduler.support.scheduling import schedule


def reason(made: ClusterState, name: str = "p") -> str:
    """Return why a GPU pod waits, or an empty string."""
    decision = finish(schedule(made, pod(name, memory=1)))
    return decision.note if isinstance(decision, Unschedulable) else ""


def test_the_node_of_a_silent_agent_takes_no_new_gpu_pods_and_keeps_its_own() -> None:
    """A Lease that is not renewed within its duration closes the node: the reason names it and the duration."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1", seconds=40))
    finish(schedule(made, pod("before", memory=100)))
    clock.now += 40
    assert made.closed_nodes.now() == {}
    clock.now += 1
    assert "agent of node n1 is silent: Lease tranche-system/agent-n1 was not renewed for more than 40 s" in reason(
        made
    )
    assert made.ledger.reservation("uid-before") is not None
    assert isinstance(finish(schedule(made, pod("no-gpu"))), Scheduled), "a pod without GPU needs no agent"


def test_the_length_of_a_silence_is_shown_in_doublings() -> None:
    """A message that changed every second would be written to the API server after every decision."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    lengths = []
    for _ in range(241):
        clock.now += 1
        lengths.append(texts(made.closed_nodes.now()).get("n1", "").rpartition("more than ")[2])
    assert lengths == [""] * 60 + ["60 s"] * 60 + ["120 s"] * 120 + ["240 s"]


async def test_a_renewal_opens_the_node_and_makes_waiting_pods_active() -> None:
    """Nothing but the change of the Lease is needed."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    clock.now += 61
    made.set_pod(pod("waits", memory=1))
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    made.set_lease(lease("n1", renewed="2026-01-01T00:01:11.000000Z"))
    async with asyncio.timeout(10):
        assert await made.queue.pop() is entry
    assert isinstance(finish(schedule(made, entry.pod)), Scheduled)


def test_a_lease_is_fresh_when_it_is_first_seen() -> None:
    """Its times are those of another machine, and mean nothing to a scheduler that has just started."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1", renewed="1999-01-01T00:00:00.000000Z"))
    assert reason(made) == ""


def test_only_a_change_of_the_spec_is_a_renewal() -> None:
    """A label on the Lease, or a list that shows it again, is not."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    clock.now += 59
    again = lease("n1")
    again.metadata.resource_version = "2"
    made.set_lease(again)
    clock.now += 2
    assert reason(made)


def test_a_missing_lease_expires_after_the_grace_period() -> None:
    """An agent writes its report before its Lease, and may create a deleted Lease again."""
    clock = Clock()
    made = state("n1", clock=clock)
    clock.now += 60
    assert made.closed_nodes.now() == {}
    clock.now += 1
    assert "agent-n1 does not exist for more than 60 s" in reason(made)
    made.set_lease(lease("n1"))
    assert made.closed_nodes.now() == {}
    made.drop_lease(lease("n1"))
    clock.now += 60
    assert made.closed_nodes.now() == {}
    clock.now += 1
    assert "agent-n1 does not exist" in reason(made)


def test_a_repeated_report_is_not_a_renewal() -> None:
    """The grace period begins when the report is first seen."""
    clock = Clock()
    made = state("n1", clock=clock)
    clock.now += 50
    made.agent_reports.set(status("n1", cards=3))
    clock.now += 11
    assert reason(made)


def test_a_node_without_agent_needs_no_lease() -> None:
    """HAMi's plugin writes no Lease."""
    clock = Clock()
    made = state(clock=clock)
    card = '{"id":"GPU-a","index":0,"count":4,"devmem":100,"devcore":100,"type":"x","health":true}'
    advertises = {"allocatable": {"cpu": "64", "pods": "110", "nvidia.com/gpu": "4"}}
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {HAMI_REGISTER: f"[{card}]"}}, status=advertises))
    clock.now += 1000
    assert reason(made) == ""


def test_a_removed_report_ends_the_requirement_of_a_lease() -> None:
    """An administrator who removed the agent and its report may use the node otherwise, whatever Lease is left."""
    clock = Clock()
    beats = AgentLeases(clock=clock)
    beats.track("n1")
    beats.set_lease(lease("n1"))
    clock.now += 61
    beats.refresh(clock.now)
    assert set(beats.rejections) == {"n1"}
    beats.untrack("n1")
    assert beats.rejections == {}
    beats.drop_lease(lease("n1"))
    beats.track("n1")
    beats.refresh(clock.now)
    assert beats.rejections == {}


def legacy(node: str, *, renewed: str = "2026-01-01T00:00:00.000000Z") -> Lease:
    """Return the Lease that an agent of an early version renews."""
    made = lease(node, renewed=renewed)
    made.metadata.name = legacy_heartbeat_lease(node)
    return made


def test_the_lease_of_an_agent_of_an_early_version_counts() -> None:
    """During an upgrade, some agents renew a Lease of the other name."""
    clock = Clock()
    made = state("n1", clock=clock)
    for number in range(4):
        made.set_lease(legacy("n1", renewed=f"2026-01-01T00:0{number}:00.000000Z"))
        clock.now += 59
        assert made.closed_nodes.now() == {}
    clock.now += 2
    assert "Lease tranche-system/gpu-n1 was not renewed" in reason(made)
    made.set_lease(lease("n1"))
    assert made.closed_nodes.now() == {}
    clock.now += 61
    assert "Lease tranche-system/agent-n1 was not renewed" in reason(made)


def test_the_older_lease_is_superseded_once_the_present_one_is_seen() -> None:
    """Its name may be that of a card's Lease: node a-0 and card 0 of node a."""
    clock = Clock()
    beats = AgentLeases(clock=clock)
    beats.track("n1")
    beats.set_lease(legacy("n1"))
    assert beats.superseded() == []
    beats.set_lease(lease("n1"))
    assert [each.name for each in beats.superseded()] == ["gpu-n1"]
    beats.drop_lease(legacy("n1"))
    assert beats.superseded() == []
    beats.refresh(clock.now)
    assert beats.rejections == {}


def test_the_lease_of_a_card_is_no_heartbeat() -> None:
    """Card 0 of node a, while the agent of node a-0 is silent."""
    clock = Clock()
    made = state("a-0", clock=clock)
    clock.now += 59
    made.set_lease(lease_of("p", node="a"))
    clock.now += 2
    assert set(made.closed_nodes.now()) == {"a-0"}


def test_other_leases_are_ignored() -> None:
    """The leader's Lease is in the same namespace."""
    beats = AgentLeases(clock=Clock())
    beats.track("tranche-scheduler")
    assert not beats.set_lease(Lease(LeaseMeta(name="tranche-scheduler")))
    assert beats._renewals.keys() == {"agent-tranche-scheduler"}


def test_the_lease_of_an_agent_can_be_read() -> None:
    """The body of its Lease, as it comes back from the API server."""
    body = publisher.heartbeat("n1", identity="agent-1", seconds=30, unix=1.5)
    read = msgspec.convert(body, Lease)
    assert read.metadata.name == heartbeat_lease("n1")
    assert read.spec.holder_identity == "agent-1"
    assert read.spec.lease_duration_seconds == 30
    assert read.spec.renew_time == "1970-01-01T00:00:01.500000Z"


def test_the_end_of_a_lease_is_noticed_at_the_first_look_after_it() -> None:
    """A look at the very end changes nothing, and the next one is due at once; renewals put it off."""
    clock = Clock()
    leases = AgentLeases(clock=clock)
    leases.track("n1")
    leases.set_lease(lease("n1", seconds=60))
    end = leases.due
    assert end == clock.now + 60
    leases.refresh(end)
    assert (leases.rejections, leases.due) == ({}, end)
    leases.refresh(end + 0.001)
    assert [*leases.rejections] == ["n1"]
    assert leases.due == end + 60
    clock.now = end + 1
    leases.set_lease(lease("n1", seconds=60, renewed="2026-01-01T01:00:00.000000Z"))
    assert leases.rejections == {}
    leases.refresh(clock.now)
    assert leases.due == clock.now + 60


@pytest.mark.parametrize("begun", [0.0, 0.5816256055687496, 2.4223919090131183])
def test_the_times_of_leases_are_rounded_without_an_error(begun: float) -> None:
    """The difference of two times may be rounded to the duration although the sum has been passed."""
    clock = Clock()
    clock.now = begun
    leases = AgentLeases(clock=clock)
    leases.track("n1")
    for now in (begun + 60, math.nextafter(begun + 60, math.inf)):
        leases.refresh(now)
        assert (leases.rejections != {}) == (now > begun + 60)
