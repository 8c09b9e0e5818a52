"""A node without agent is usable as long as its kubelet advertises devices (HAMi's rules 1.1)."""

from typing import Any

import pytest

from allocation.names import HAMI_HANDSHAKE, HAMI_REGISTER
from allocation.steps import finish
from scheduler.cycle.result import Unschedulable
from scheduler.objects import Node
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, lease, node, pod, state, status
from tests.scheduler.support.scheduling import schedule

CARDS = '[{"id":"GPU-n1-0","count":4,"devmem":1000,"devcore":100,"type":"x","health":true}]'
ASKED = "Requesting_2026-01-01 00:00:00"
PLENTY = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def annotated(*, advertised: int | None = None, handshake: str | None = None) -> Node:
    """Return a node with HAMi's register annotation."""
    annotations = {HAMI_REGISTER: CARDS, **({} if handshake is None else {HAMI_HANDSHAKE: handshake})}
    allocatable: dict[str, Any] = PLENTY if advertised is None else {**PLENTY, "nvidia.com/gpu": str(advertised)}
    return node("n1", metadata={"name": "n1", "annotations": annotations}, status={"allocatable": allocatable})


def known(clock: Clock, **fields: Any) -> ClusterState:
    """Return a state that has just seen such a node."""
    made = state(clock=clock)
    made.set_node(annotated(**fields))
    return made


def reason(made: ClusterState) -> str:
    """Return why a GPU pod waits, or an empty string; the pod is removed again."""
    decision = finish(schedule(made, pod("p", memory=1)))
    made.drop_pod(pod("p", memory=1))
    return decision.note if isinstance(decision, Unschedulable) else ""


@pytest.mark.parametrize("handshake", [None, ASKED, "Requesting_nonsense", "Deleted_2026-01-01", "Reported 2026"])
def test_advertised_devices_prove_a_live_plugin(handshake: str | None) -> None:
    """Whatever the handshake says, and however old it is: HAMi writes it once and lets it age."""
    clock = Clock()
    made = known(clock, advertised=40, handshake=handshake)
    clock.now += 3600
    assert reason(made) == ""


@pytest.mark.parametrize("handshake", [None, ASKED, "Reported 2026-01-01 00:00:00"])
def test_a_node_without_devices_has_a_grace_period(handshake: str | None) -> None:
    """Pods are placed at once; after 60 s the kubelet must advertise devices, or an agent must report."""
    clock = Clock()
    made = known(clock, handshake=handshake)
    assert reason(made) == ""
    clock.now += 60
    assert reason(made) == ""
    clock.now += 1
    assert "no agent reports the cards of node n1" in reason(made)
    made.set_node(annotated(advertised=40, handshake=handshake))
    assert reason(made) == ""


def test_a_new_handshake_request_does_not_prove_a_live_plugin() -> None:
    """HAMi's scheduler, which may still run, writes it again and again."""
    clock = Clock()
    made = known(clock, handshake=ASKED)
    clock.now += 61
    made.set_node(annotated(handshake="Requesting_2026-01-01 00:01:01"))
    assert "no agent reports" in reason(made)


@pytest.mark.parametrize("handshake", ["Requesting_", "Requesting_yesterday", "Deleted_2026-01-01 00:00:00"])
def test_a_handshake_with_an_unreadable_date_is_stale(handshake: str) -> None:
    """The node is closed at once, unless the kubelet advertises devices; the reason quotes the annotation."""
    clock = Clock()
    made = known(clock, handshake=handshake)
    assert f"annotation {HAMI_HANDSHAKE} is {handshake!r}" in reason(made)
    made.set_node(annotated(advertised=1, handshake=handshake))
    assert reason(made) == ""


@pytest.mark.parametrize("left", [0, None])
def test_a_plugin_that_goes_closes_its_node_at_once(left: int | None) -> None:
    """The kubelet advertises 0, or the resource is gone: no grace period, and new devices open the node."""
    clock = Clock()
    made = known(clock, advertised=40, handshake=ASKED)
    made.set_node(annotated(advertised=left, handshake=ASKED), annotated(advertised=40, handshake=ASKED))
    assert "HAMi's device plugin of node n1 is gone" in made.closed_nodes.now()["n1"].message
    assert reason(made)
    made.set_node(annotated(advertised=40, handshake=ASKED), annotated(advertised=left, handshake=ASKED))
    assert reason(made) == ""


def test_an_agent_overrides_the_plugin() -> None:
    """Its report and Lease count, not what HAMi left on the node; when it is gone, the plugin counts again."""
    clock = Clock()
    made = known(clock, handshake="Deleted_2026")
    made.agent_reports.set(status("n1"))
    made.set_lease(lease("n1"))
    assert reason(made) == ""
    made.agent_reports.drop(status("n1"))
    assert "is stale" in reason(made)


def test_hamis_protocol_is_for_nodes_with_a_live_plugin_only() -> None:
    """No lock and no handshake where an agent reports, where nothing is advertised, or where nothing is registered."""
    made = known(Clock(), advertised=40)
    assert made.plugin_nodes.is_hami("n1")
    made.agent_reports.set(status("n1"))
    assert not made.plugin_nodes.is_hami("n1")
    made.agent_reports.drop(status("n1"))
    made.set_node(annotated(advertised=0))
    assert not made.plugin_nodes.is_hami("n1")
    made.set_node(node("n1", status={"allocatable": {**PLENTY, "nvidia.com/gpu": "40"}}))
    assert not made.plugin_nodes.is_hami("n1")
    made.drop_node(node("n1"))
    assert not made.plugin_nodes.is_hami("n1")


def test_the_advertised_number_limits_placement() -> None:
    """The kubelet rejects pods beyond it; pods of other schedulers count too, finished ones do not."""
    made = state()
    made.set_node(node("n1", status={"allocatable": {**PLENTY, "nvidia.com/gpu": "2"}}))
    made.agent_reports.set(status("n1"))
    other = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}]
    made.set_pod(pod("cpu", node="n1"))
    made.set_pod(pod("other", node="n2", schedulerName="default-scheduler", containers=other))
    assert not isinstance(finish(schedule(made, pod("a", memory=1))), Unschedulable)
    assert not isinstance(finish(schedule(made, pod("b", memory=1))), Unschedulable)
    full = "Insufficient nvidia.com/gpu: the node's device plugin advertises 2"
    assert full in reason(made)
    made.drop_pod(pod("a", memory=1))
    assert reason(made) == ""


def test_a_kubelet_that_advertises_zero_takes_no_pod() -> None:
    """It rejects every pod with GPUs: the resource of the former plugin is still on the node."""
    made = state()
    made.set_node(node("n1", status={"allocatable": {**PLENTY, "nvidia.com/gpu": "0"}}))
    made.agent_reports.set(status("n1"))
    assert "the node's device plugin advertises 0" in reason(made)
    made.set_node(node("n1"))
    assert reason(made) == ""
