"""1.1, 1.2, 2.4: nodes that HAMi's plugin serves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from allocation.names import HAMI_BIND_PHASE, HAMI_HANDSHAKE, HAMI_REGISTER
from scheduler import node_lock
from scheduler.cycle import Chosen, Waiting, decide
from scheduler.objects import Node
from scheduler.plugin_binder import handshake
from scheduler.state import State
from tests.scheduler.builders import Clock, node, pod, state

CARDS = '[{"id":"GPU-n1-0","count":4,"devmem":1000,"devcore":100,"type":"NVIDIA L4","health":true}]'
ASKED = "Requesting_2026-01-01 00:00:00"
LOCK = "2026-01-01T00:00:00Z,default,held"


def annotated(advertised: int | None, asked: str | None = None) -> Node:
    """Answer a node that only HAMi's plugin annotates, whose kubelet counts so many devices."""
    annotations = {HAMI_REGISTER: CARDS, **({HAMI_HANDSHAKE: asked} if asked is not None else {})}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if advertised is not None:
        allocatable["nvidia.com/gpu"] = str(advertised)
    return node("n1", metadata={"name": "n1", "annotations": annotations}, status={"allocatable": allocatable})


def takes(made: State, **asks: int) -> bool:
    """Answer whether the node takes a pod now; it is not kept."""
    decision = decide(made, pod("p", **{"memory": 1, **asks}))
    made.drop_pod(pod("p", memory=1))
    return isinstance(decision, Chosen)


@pytest.mark.rule("1.1.13")
def test_a_kubelet_that_counts_devices_vouches() -> None:
    """However old the handshake; when the count falls to 0 the node is closed at once."""
    clock = Clock()
    made = state(clock=clock)
    made.set_node(annotated(4, ASKED))
    clock.now += 3600
    assert takes(made)
    made.set_node(annotated(0, ASKED), annotated(4, ASKED))
    assert not takes(made)


@pytest.mark.rule("1.1.14")
def test_without_devices_sixty_seconds() -> None:
    """By our clock: nobody's time zone matters."""
    clock = Clock()
    made = state(clock=clock)
    made.set_node(annotated(None, ASKED))
    clock.now += 60
    assert takes(made)
    clock.now += 1
    assert not takes(made)


@pytest.mark.rule("1.1.15")
@pytest.mark.parametrize("asked", ["Requesting_", "Requesting_yesterday", "Deleted_2026-01-01 00:00:00"])
def test_an_unreadable_date_is_an_old_one(asked: str) -> None:
    """HAMi takes it for alive."""
    made = state()
    made.set_node(annotated(None, asked))
    assert not takes(made)


@pytest.mark.rule("1.1.17")
def test_devices_bound_what_is_placed() -> None:
    """The kubelet refuses what goes beyond, whatever memory is left."""
    made = state()
    made.set_node(annotated(1))
    assert isinstance(decide(made, pod("a", memory=1)), Chosen)
    waiting = decide(made, pod("b", memory=1))
    assert isinstance(waiting, Waiting)
    assert "Insufficient nvidia.com/gpu: the node's device plugin advertises 1" in waiting.note


@pytest.mark.rule("1.1.16")
def test_the_lock_on_the_wire() -> None:
    """Its pod by name; an older one names none."""
    held = pod("held")
    text = node_lock.write(held, datetime(2026, 1, 1, tzinfo=UTC))
    assert text == LOCK
    lock = node_lock.read(text)
    assert (lock.namespace, lock.name) == ("default", "held")
    assert node_lock.read("2026-01-01T00:00:00Z").name == ""


@pytest.mark.rule("1.2.10")
def test_the_handshake_rides_on_the_binding() -> None:
    """With the allocation string that the plugin consumes, and ordinals for HAMi-core."""
    made = state()
    made.set_node(annotated(4))
    chosen = decide(made, pod("a", memory=100))
    assert isinstance(chosen, Chosen)
    assert handshake(chosen, unix_seconds=1755757240) == {
        "hami.io/vgpu-devices-to-allocate": "GPU-n1-0,NVIDIA,100,0:;",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1755757240",
        "cuda-visible-devices.gpu.scheduling/main": "0",
    }


OURS, ANOTHERS = True, False
LOCKS: list[Any] = [
    # age, UID of whom we took it for, whose its pod is, the pod, and whether it is free
    (300, "", ANOTHERS, {}, True),
    (299, "", ANOTHERS, {}, False),
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
def test_when_a_lock_is_free(row: Any) -> None:
    """By age, by whose it is, and by what became of its pod."""
    age, holder, is_ours, fields, is_free = row
    held = None if fields is None else pod("held", **fields)
    reason = node_lock.dangling(node_lock.read(LOCK), held, node="n1", holder=holder, is_ours=is_ours, age_seconds=age)
    assert bool(reason) is is_free


@pytest.mark.rule("2.4.3")
def test_our_nodes_know_no_lock() -> None:
    """One Binding says it all."""
    made = state("n1")
    assert not made.plugin_nodes.is_hami("n1")
    made.set_node(annotated(4))
    assert not made.plugin_nodes.is_hami("n1"), "an agent of ours speaks for it"
    served = state()
    served.set_node(annotated(4))
    assert served.plugin_nodes.is_hami("n1")
