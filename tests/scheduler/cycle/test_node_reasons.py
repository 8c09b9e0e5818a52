"""Every reason why a node does not take a pod has a code, from the filter to the scheduling result."""

from __future__ import annotations

from typing import Any

import pytest

from allocation import names
from allocation.reasons import CLOSING, NodeReason, PodReason
from allocation.steps import finish
from scheduler.cycle.result import Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, allocated, lease, node, pod, state, status
from tests.scheduler.support.scheduling import schedule

TERM = [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
GREEDY = [{"name": "main", "resources": {"requests": {"cpu": "1k"}}}]
PORT = [{"name": "main", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]}]
REGISTER = '[{"id":"GPU-a","index":0,"count":4,"devmem":1000,"devcore":100,"type":"x","health":true}]'


def reasons(made: ClusterState, pending: Pod) -> frozenset[str]:
    """Return the codes of the reasons why a pod waits."""
    decision = finish(schedule(made, pending))
    assert isinstance(decision, Unschedulable), decision
    return decision.reasons


def altered(**fields: Any) -> ClusterState:
    """Return a state with one node that has these fields."""
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
        (PodReason.PodHeld, {"resourceClaims": [{"name": "claim"}]}),
    ],
)
def test_each_requirement_of_a_pod_has_a_code(expected: str, spec: dict[str, Any]) -> None:
    """kube-scheduler has only words for these."""
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
def test_each_property_of_a_node_has_a_code(expected: str, fields: dict[str, Any]) -> None:
    """For the node's own fields and annotations."""
    made = altered(**fields)
    if expected == "InventoryRefused":
        made.agent_reports.drop(status("n1"))
    assert expected in reasons(made, pod("a", memory=1))


def test_pods_on_a_node_and_their_ports_have_codes() -> None:
    """A pod that runs on a node keeps others away."""
    made = state("n1")
    made.set_pod(pod("first", node="n1", labels={"app": "x"}, phase="Running", containers=PORT))
    assert reasons(made, pod("a", containers=PORT)) == {"NodePortTaken"}
    anti = {"podAntiAffinity": {REQUIRED: TERM}}
    assert reasons(made, pod("b", affinity=anti, labels={"app": "x"})) == {"PodAntiAffinityMismatch"}


def test_cards_have_hamis_codes() -> None:
    """A node with too few cards, or without cards, has a code of its own."""
    assert reasons(state("n1"), pod("a", memory=5000)) == {"CardInsufficientMemory"}
    many = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "3"}}}]
    assert reasons(state("n1"), pod("b", containers=many)) == {"NodeInsufficientDevice"}
    bare = state()
    assert reasons(bare, pod("c", memory=1)) == {PodReason.NoNode}
    bare.set_node(node("n1"))
    assert reasons(bare, pod("c", memory=1)) == {"NodeUnregistered"}


def test_each_reason_that_closes_a_node_has_a_code() -> None:
    """A silent agent, a node that cannot be locked, and a pod that uses cards without an allocation."""
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
    made.drop_pod(pod("stray", memory=1, node="n1", phase="Running"))
    made.agent_reports.set(status("n1", cards=0))
    assert reasons(made, pod("a", memory=1)) == {"NoCards"}
    assert set(CLOSING) < set(NodeReason)


@pytest.mark.parametrize(
    ("handshake", "message"),
    [
        ("Deleted_2026-01-01", "HAMi's device plugin of node n1 is stale"),
        ("", "no agent reports the cards of node n1"),
    ],
)
def test_a_plugin_that_is_gone_has_one_code(handshake: str, message: str) -> None:
    """Its node says so by different messages (scheduler/state/plugin_nodes.py)."""
    clock = Clock()
    made = state(clock=clock)
    annotations = {names.HAMI_REGISTER: REGISTER, names.HAMI_HANDSHAKE: handshake}
    made.set_node(node("n1", metadata={"name": "n1", "annotations": annotations}))
    clock.now += 61
    assert made.closed_nodes.now()["n1"].message.startswith(message)
    assert reasons(made, pod("a", memory=1)) == {"DevicePluginGone"}


def test_a_static_allocation_that_cannot_be_given_has_a_code() -> None:
    """The allocation names a card that does not exist."""
    wrong = allocated("a", node="n1", memory=1, card=7)
    pending = pod("a", memory=1, annotations=wrong.metadata.annotations)
    assert reasons(state("n1"), pending) == {"StaticAllocationMismatch"}


def test_nodes_with_one_reason_share_one_rejection() -> None:
    """A message about thousands of nodes puts each rejection into words once."""
    made = state("n1", "n2")
    for name in ("n1", "n2"):
        made.set_node(node(name, spec={"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}))
    for spec in ({}, {"tolerations": [{"operator": "Exists"}], "containers": GREEDY}):
        first, second = finish(made.node_filter.filter(pod("p", **spec))).rejections.values()
        assert first is second


@pytest.mark.parametrize(
    ("cpu", "resolvable"), [("60", True), ("65", False)], ids=["used by others", "more than the node has"]
)
def test_only_what_other_pods_use_is_resolvable(cpu: str, resolvable: bool) -> None:  # noqa: FBT001
    """Every resource has to suffice without other pods, not only the first that runs short."""
    made = state("n1")
    full = [{"resources": {"requests": {"cpu": "10", "memory": "250Gi"}}}]
    made.set_pod(pod("runs", node="n1", phase="Running", containers=full))
    needs = [{"name": "main", "resources": {"requests": {"memory": "10Gi", "cpu": cpu}}}]
    rejection = finish(made.node_filter.filter(pod("a", containers=needs))).rejections["n1"]
    assert (rejection.code, rejection.resolvable) == (NodeReason.NodeInsufficientResource, resolvable)


def test_the_public_text_names_no_other_pod() -> None:
    """Readers of the waiting pod may have no rights in the namespace of the pod that closes the node."""
    made = state("n1")
    made.set_pod(pod("stray", namespace="secret", memory=1, node="n1", phase="Running"))
    rejection = made.closed_nodes.now()["n1"]
    assert "secret/stray" in rejection.coded_text
    for text in (rejection.public_text, rejection.public_coded_text):
        assert "secret" not in text
        assert "a pod runs here uncounted" in text
