"""Every reason for which a node is refused has its code."""

from __future__ import annotations

from typing import Any

import pytest

from allocation import names
from scheduler.cycle import HELD, NO_NODE, Waiting, decide
from scheduler.node_reasons import CLOSING, NodeReason, of_text
from scheduler.objects import Pod
from scheduler.state import State
from tests.scheduler.builders import Clock, allocated, lease, node, pod, state, status

TERM = [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
GREEDY = [{"name": "main", "resources": {"requests": {"cpu": "1k"}}}]
PORT = [{"name": "main", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]}]


def reasons(made: State, asks: Pod) -> frozenset[str]:
    """Answer the codes of why a pod waits."""
    decision = decide(made, asks)
    assert isinstance(decision, Waiting), decision
    return decision.reasons


def altered(**fields: Any) -> State:
    """Answer a state whose only node is as told."""
    made = state("n1")
    made.set_node(node("n1", **fields))
    return made


@pytest.mark.parametrize(
    ("expected", "spec"),
    [
        ("NodeNameMismatch", {"nodeName": "n2"}),
        ("NodeSelectorMismatch", {"nodeSelector": {"a": "b"}}),
        ("NodeInsufficientResource", {"containers": GREEDY}),
        ("PodAffinityMismatch", {"affinity": {"podAffinity": {REQUIRED: TERM}}}),
        ("TopologySpreadMismatch", {"topologySpreadConstraints": SPREAD}),
        (HELD, {"resourceClaims": [{"name": "claim"}]}),
    ],
)
def test_what_a_pod_asks_of_its_node(expected: str, spec: dict[str, Any]) -> None:
    """In the words of kube-scheduler there, by a code here."""
    assert expected in reasons(state("n1"), pod("a", **spec))


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ("NodeUnschedulable", {"spec": {"unschedulable": True}}),
        ("NodeTainted", {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}),
        ("NodeTooManyPods", {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "0"}}}),
        ("DevicePluginFull", {"status": {"allocatable": {"pods": "9", "nvidia.com/gpu": "0"}}}),
        ("InventoryRefused", {"metadata": {"name": "n1", "annotations": {names.HAMI_REGISTER: "rubbish"}}}),
        ("CardCordoned", {"metadata": {"name": "n1", "annotations": {names.CORDON: "GPU-n1-0,GPU-n1-1"}}}),
    ],
)
def test_what_a_node_is(expected: str, fields: dict[str, Any]) -> None:
    """The node's own fields and annotations."""
    made = altered(**fields)
    if expected == "InventoryRefused":
        made.drop_status(status("n1"))
    assert expected in reasons(made, pod("a", memory=1))


def test_neighbours_and_ports() -> None:
    """Who runs there keeps others away."""
    made = state("n1")
    made.set_pod(pod("first", node="n1", labels={"app": "x"}, phase="Running", containers=PORT))
    assert reasons(made, pod("a", containers=PORT)) == {"NodePortTaken"}
    anti = {"podAntiAffinity": {REQUIRED: TERM}}
    assert reasons(made, pod("b", affinity=anti, labels={"app": "x"})) == {"PodAntiAffinityMismatch"}


def test_cards() -> None:
    """Of cards HAMi's reasons; of a node with too few of them or none its own."""
    assert reasons(state("n1"), pod("a", memory=5000)) == {"CardInsufficientMemory"}
    many = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "3"}}}]
    assert reasons(state("n1"), pod("b", containers=many)) == {"NodeInsufficientDevice"}
    bare = state()
    assert reasons(bare, pod("c", memory=1)) == {NO_NODE}
    bare.set_node(node("n1"))
    assert reasons(bare, pod("c", memory=1)) == {"NodeUnregistered"}


def test_closed_nodes() -> None:
    """A silent agent, a dead plugin, one that cannot be locked, and a pod that uses cards unknown."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.set_lease(lease("n1"))
    clock.now += 61
    assert reasons(made, pod("a", memory=1)) == {"AgentSilent"}
    made.set_lease(lease("n1", renewed="2026-01-02T00:00:00.000000Z"))
    made.plugin_nodes.close("n1", "node n1 cannot be locked for HAMi's device plugin: Forbidden")
    assert reasons(made, pod("a", memory=1)) == {"NodeNotLockable"}
    made.plugin_nodes.reopen("n1")
    made.set_pod(pod("stray", memory=1, node="n1", phase="Running"))
    assert reasons(made, pod("a", memory=1)) == {"UncountedPod"}


@pytest.mark.parametrize("text", ["HAMi's device plugin of node n1 is gone: …", "nobody vouches for the cards of n1"])
def test_a_plugin_that_is_gone(text: str) -> None:
    """Both ways to say so (scheduler/plugin_nodes.py)."""
    assert of_text(text) is NodeReason.DevicePluginGone


def test_a_static_allocation_that_cannot_be_given() -> None:
    """It names a card that is not there."""
    wrong = allocated("a", node="n1", memory=1, card=7)
    asks = pod("a", memory=1, annotations=wrong.metadata.annotations)
    assert reasons(state("n1"), asks) == {"StaticAllocationMismatch"}


def test_what_is_not_known_is_counted_all_the_same() -> None:
    """A text of a later day is no error."""
    assert of_text("the moon is full") is NodeReason.Other
    assert set(CLOSING) < set(NodeReason)
