"""1.1, 1.2, 2.4: nodes of HAMi's plugin."""

from datetime import UTC, datetime
from typing import Any

import pytest

from allocation.names import HAMI_BIND_PHASE, HAMI_HANDSHAKE, HAMI_REGISTER
from allocation.steps import finish
from scheduler.binding import node_lock
from scheduler.binding.plugin_binder import handshake
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Node
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, node, pod, state
from tests.scheduler.support.scheduling import schedule

CARDS = '[{"id":"GPU-n1-0","count":4,"devmem":1000,"devcore":100,"type":"NVIDIA L4","health":true}]'
HANDSHAKE = "Requesting_2026-01-01 00:00:00"
LOCK = "2026-01-01T00:00:00Z,default,held"


def annotated(advertised: int | None, handshake: str | None = None) -> Node:
    """Return a node that only HAMi's plugin annotates, and whose kubelet advertises `advertised` devices."""
    annotations = {HAMI_REGISTER: CARDS, **({HAMI_HANDSHAKE: handshake} if handshake is not None else {})}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if advertised is not None:
        allocatable["nvidia.com/gpu"] = str(advertised)
    return node("n1", metadata={"name": "n1", "annotations": annotations}, status={"allocatable": allocatable})


def takes(made: ClusterState, **request: int) -> bool:
    """Return whether the node takes a pod now, without keeping the pod."""
    decision = finish(schedule(made, pod("p", **{"memory": 1, **request})))
    made.drop_pod(pod("p", memory=1))
    return isinstance(decision, Scheduled)


@pytest.mark.rule("1.1.13")
def test_a_node_is_alive_while_its_kubelet_advertises_devices() -> None:
    """The age of the handshake does not matter. When the count falls to 0, the node closes at once."""
    clock = Clock()
    made = state(clock=clock)
    made.set_node(annotated(4, HANDSHAKE))
    clock.now += 3600
    assert takes(made)
    made.set_node(annotated(0, HANDSHAKE), annotated(4, HANDSHAKE))
    assert not takes(made)


@pytest.mark.rule("1.1.14")
def test_a_node_without_devices_closes_after_sixty_seconds() -> None:
    """Our clock counts, so time zones do not matter."""
    clock = Clock()
    made = state(clock=clock)
    made.set_node(annotated(None, HANDSHAKE))
    clock.now += 60
    assert takes(made)
    clock.now += 1
    assert not takes(made)


@pytest.mark.rule("1.1.15")
@pytest.mark.parametrize("handshake_text", ["Requesting_", "Requesting_yesterday", "Deleted_2026-01-01 00:00:00"])
def test_a_handshake_with_an_unreadable_date_counts_as_old(handshake_text: str) -> None:
    """To HAMi, such a node is alive."""
    made = state()
    made.set_node(annotated(None, handshake_text))
    assert not takes(made)


@pytest.mark.rule("1.1.17")
def test_advertised_devices_limit_the_containers_placed() -> None:
    """The kubelet rejects further containers, however much memory is left."""
    made = state()
    made.set_node(annotated(1))
    assert isinstance(finish(schedule(made, pod("a", memory=1))), Scheduled)
    unschedulable = finish(schedule(made, pod("b", memory=1)))
    assert isinstance(unschedulable, Unschedulable)
    assert "Insufficient nvidia.com/gpu: the node's device plugin advertises 1" in unschedulable.note


@pytest.mark.rule("1.1.16")
def test_the_lock_annotation_names_the_pod() -> None:
    """Older forms have only a date."""
    holder = pod("held")
    text = node_lock.write(holder, datetime(2026, 1, 1, tzinfo=UTC))
    assert text == LOCK
    lock = node_lock.read(text)
    assert (lock.namespace, lock.name) == ("default", "held")
    assert node_lock.read("2026-01-01T00:00:00Z").name == ""


@pytest.mark.rule("1.2.10")
def test_the_binding_carries_the_annotations_for_the_plugin() -> None:
    """They are the allocation string that the plugin consumes, and ordinals for HAMi-core."""
    made = state()
    made.set_node(annotated(4))
    chosen = finish(schedule(made, pod("a", memory=100)))
    assert isinstance(chosen, Scheduled)
    assert handshake(chosen, unix_seconds=1755757240) == {
        "hami.io/vgpu-devices-to-allocate": "GPU-n1-0,NVIDIA,100,0:;",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1755757240",
        "cuda-visible-devices.gpu.scheduling/main": "0",
    }


OURS, FOREIGN = True, False
LOCKS: list[Any] = [
    # age, UID of the pod that we took the lock for, whose pod holds it, the pod, whether the lock is expired
    (300, "", FOREIGN, {}, True),
    (299, "", FOREIGN, {}, False),
    (1, "uid-held", OURS, {}, False),
    (1, "", OURS, {}, True),
    (1, "uid-other", OURS, {}, True),
    (1, "uid-held", OURS, {"phase": "Succeeded"}, True),
    (1, "uid-held", OURS, {"node": "n2"}, True),
    (1, "uid-held", OURS, {"node": "n1"}, False),
    (1, "uid-held", OURS, {"node": "n1", "annotations": {HAMI_BIND_PHASE: "success"}}, True),
    (1, "", OURS, None, True),
]


@pytest.mark.rule("2.4.1", "2.4.2")
@pytest.mark.parametrize("row", LOCKS)
def test_when_a_lock_is_expired(row: Any) -> None:
    """That depends on its age, on whose pod holds it, and on the state of that pod."""
    age, holder, is_ours, fields, is_expired = row
    held = None if fields is None else pod("held", **fields)
    reason = node_lock.dangling(node_lock.read(LOCK), held, node="n1", holder=holder, is_ours=is_ours, age_seconds=age)
    assert bool(reason) is is_expired


@pytest.mark.rule("2.4.3")
def test_nodes_with_our_agent_need_no_lock() -> None:
    """The Binding is the only write."""
    made = state("n1")
    assert not made.plugin_nodes.is_hami("n1")
    made.set_node(annotated(4))
    assert not made.plugin_nodes.is_hami("n1"), "our agent reports it"
    served = state()
    served.set_node(annotated(4))
    assert served.plugin_nodes.is_hami("n1")
