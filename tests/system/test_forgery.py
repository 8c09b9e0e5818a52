"""Attempts to use a card without an allocation: each attack of docs/threat-model.md, against the whole product."""

from __future__ import annotations

import copy
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION
from allocation.variables import TABLE, Ruling
from allocation.wire import environment, record
from lab import kubeconfig, wait
from lab.client import client
from lab.errors import LabError
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod
from tests.system.test_slice import exec_environment, owned

if TYPE_CHECKING:
    from pathlib import Path

    from allocation.allocation import CardShare
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

CUDA_LIKE = "tranche.local/cuda-like:lab"  # an image that requests all devices
GREED = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    "CUDA_DEVICE_MEMORY_LIMIT": "999999m",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "999999m",
    "CUDA_DEVICE_SM_LIMIT": "100",
}
GREEDY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greed"}, "data": GREED}
BLIND = {"NVIDIA_VISIBLE_DEVICES": "void"}
REGISTER = "hami.io/node-nvidia-register"
UNPRIVILEGED_POD = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
}
UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def create_warned(namespace: Namespace, manifest: dict[str, Any]) -> str:
    """Create an object; return the warnings that kubectl printed."""
    layout = namespace.layout
    done = subprocess.run(
        [layout.bin / "kubectl", f"--kubeconfig={layout.kubeconfig}", "-n", namespace.name, "create", "-f", "-"],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def allocated_environment(namespace: Namespace, name: str) -> dict[str, str]:
    """Return the environment that follows from a placed pod's allocation."""
    return environment.values(allocated_shares(namespace, name))


# ---- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.kubelet
@pytest.mark.parametrize("source", ["plain", "envFrom", "valueFrom"])
def test_user_environment_does_not_override_the_allocation(
    tranche_node: Layout, namespace: Namespace, source: str
) -> None:
    """However a user sets the managed variables, the container gets the values of its allocation."""
    namespace.create(GREEDY)
    sent = pod("greedy", node=tranche_node.node_name, gpu=1, gpumem=3000, gpucores=30)
    container = sent["spec"]["containers"][0]
    match source:
        case "plain":
            container["env"] = [{"name": name, "value": value} for name, value in GREED.items()]
        case "envFrom":
            container["envFrom"] = [{"configMapRef": {"name": "greed"}}]
        case _:
            container["env"] = [
                {"name": name, "valueFrom": {"configMapKeyRef": {"name": "greed", "key": name}}} for name in GREED
            ]
    warnings = create_warned(namespace, sent)
    # The kubelet reads the ConfigMap, so admission cannot warn about it; the values have no effect all the same.
    assert warnings.count("Warning: container main: ") == (0 if source == "envFrom" else len(GREED))
    assert ("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 was dropped" in warnings) == (source == "plain")
    namespace.ready("greedy")
    assert exec_environment(namespace, "greedy") == allocated_environment(namespace, "greedy")


@pytest.mark.kubelet
def test_container_without_gpu_request_sees_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """In a pod with a GPU container, no other container sees a card, by image, variable or ConfigMap."""
    namespace.create(GREEDY)
    sent = pod("pair", node=tranche_node.node_name, gpu=1, gpumem=3000)
    other = {**copy.deepcopy(sent["spec"]["containers"][0]), "name": "other", "image": CUDA_LIKE, "resources": {}}
    other["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    other["envFrom"] = [{"configMapRef": {"name": "greed"}}]
    sent["spec"]["containers"].append(other)
    namespace.create(sent)
    namespace.ready("pair")
    assert exec_environment(namespace, "pair", "other")["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_variables_that_weaken_limits_are_removed(tranche: Layout, namespace: Namespace) -> None:
    """Each is removed with a warning; `LD_PRELOAD` belongs to the user and stays."""
    sent = pod("switched", gpu=1, gpumem=100)
    switches = [row.name.replace("*", "0") for row in TABLE if row.ruling is Ruling.REMOVED]
    entries = [{"name": name, "value": "100"} for name in (*switches, "LD_PRELOAD")]
    sent["spec"]["containers"][0]["env"] = entries
    warnings = create_warned(namespace, sent)
    assert [name for name in switches if f"{name} was removed" not in warnings] == []
    names = [entry["name"] for entry in namespace.pod("switched")["spec"]["containers"][0]["env"]]
    assert {"CUDA_DISABLE_CONTROL", "CUDA_DEVICE_SM_LIMIT_0"} < set(switches)
    assert not set(switches) & set(names)
    assert "LD_PRELOAD" in names


# ---- debug containers ------------------------------------------------------------------------------------------------


def debug(name: str, *more: str, container: str = "debugger") -> tuple[str, ...]:
    """Return the arguments by which kubectl adds a container whose image requests all devices."""
    return (
        *("debug", name, "--container", container, "--image", CUDA_LIKE, "--image-pull-policy", "Never"),
        *("--profile", "general", *more, "--", "sleep", "3600"),
    )


@pytest.mark.kubelet
def test_debug_container_sees_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """Neither its image nor its own variables show it a card, even when the opt-in labels are gone."""
    namespace.create(pod("looked-at", node=tranche_node.node_name, gpu=1, gpumem=3000))
    namespace.ready("looked-at")
    namespace.patch("pod", "looked-at", {"metadata": {"labels": {"gpu.scheduling/injection": "disabled"}}})
    client(namespace.layout).patch(
        "namespace", namespace.name, {"metadata": {"labels": {"gpu.scheduling/injection": None}}}
    )
    namespace.kubectl(*debug("looked-at", "--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "CUDA_VISIBLE_DEVICES=0"))

    def started() -> bool:
        statuses = namespace.pod("looked-at")["status"].get("ephemeralContainerStatuses", [])
        return any("running" in each["state"] for each in statuses)

    wait.until(started, what="a running debug container", timeout_s=PATIENCE_S)
    assert exec_environment(namespace, "looked-at", "debugger") == BLIND


def test_privileged_debug_container_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """It would see every card of the node."""
    namespace.create(pod("looked-at", node="gpu-sim-0", gpu=1, gpumem=100))
    namespace.placed(1)
    with pytest.raises(LabError, match="container debugger is privileged"):
        namespace.kubectl(*debug("looked-at", "--profile", "sysadmin"))


# ---- annotations, labels, bindings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subresource", ["", "status", "ephemeralcontainers", pytest.param("resize", marks=pytest.mark.kubelet)]
)
@pytest.mark.parametrize("key", ["cuda-visible-devices.gpu.scheduling/main", ALLOCATION, "hami.io/bind-phase"])
def test_allocation_cannot_be_changed(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest, subresource: str, key: str
) -> None:
    """Not even an administrator can add, change or remove it, through the pod or any of its subresources."""
    node = "gpu-sim-0"
    if subresource == "resize":  # only a kubelet can report that its pods can be resized
        request.getfixturevalue("node_support")
        node = tranche.node_name
    namespace.create(pod("placed", node=node, gpu=1, gpumem=100))
    if subresource == "resize":
        namespace.ready("placed")
    (before,) = namespace.placed(1)
    for value in ("forged", None):
        patch = {"metadata": {"annotations": {key: value}}}
        why = refusal(partial(namespace.patch, "pod", "placed", patch, subresource=subresource))
        # Where there are no annotations, or no such one to remove, nothing is refused.
        assert not why or f"annotation {key}" in why
    assert namespace.pod("placed")["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.kubelet
def test_resize_cannot_request_gpus(tranche_node: Layout, namespace: Namespace) -> None:
    """A running pod cannot become a GPU pod, or get a larger slice."""
    node = tranche_node.node_name
    namespace.create(pod("plain", node=node), pod("slice", node=node, gpu=1, gpumem=100))
    for name in ("plain", "slice"):
        namespace.ready(name)
        limits = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 50000}
        patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]}}
        resize = partial(namespace.api.patch, namespace=namespace.name, subresource="resize", by="strategic")
        why = refusal(partial(resize, "pod", name, patch))
        assert "resize" in why or "only cpu and memory resources are mutable" in why


def test_changed_labels_keep_the_pod_managed(tranche: Layout, namespace: Namespace) -> None:
    """A pod stays managed, with its cards, when its namespace's label is removed or its own labels are changed."""
    namespace.create(pod("placed", node="gpu-sim-0", gpu=1, gpumem=100))
    (before,) = namespace.placed(1)
    client(namespace.layout).patch(
        "namespace", namespace.name, {"metadata": {"labels": {"gpu.scheduling/injection": None}}}
    )
    namespace.patch(
        "pod", "placed", {"metadata": {"labels": {"gpu.scheduling/injection": "disabled", "hami.io/webhook": "ignore"}}}
    )
    forgotten = {"metadata": {"annotations": {ALLOCATION: None}}}
    assert ALLOCATION in refusal(lambda: namespace.patch("pod", "placed", forgotten))
    namespace.kubectl(*debug("placed"))
    (added,) = namespace.pod("placed")["spec"]["ephemeralContainers"]
    assert added["env"] == [{"name": name, "value": value} for name, value in BLIND.items()]
    assert namespace.pod("placed")["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.kubelet
def test_direct_binding_gives_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """A user who may bind can put a GPU pod on a node, but gets no card; the node takes no GPU pod until it is gone."""
    node = tranche_node.node_name
    manifest = pod("bound", gpu=1, gpumem=999999)
    manifest["spec"]["containers"][0]["image"] = CUDA_LIKE
    namespace.create(manifest)
    namespace.unplaced("bound")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}}
    binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": node}  # type: ignore[assignment]
    namespace.api.request("POST", f"/api/v1/namespaces/{namespace.name}/pods/bound/binding", body=binding)
    namespace.ready("bound")
    assert set(exec_environment(namespace, "bound").values()) == {""}
    namespace.create(pod("next", node=node, gpu=1, gpumem=100))
    assert "UncountedPod: a pod runs here uncounted" in namespace.unplaced("next")
    namespace.delete("pod", "bound")
    namespace.placed(1)


def test_preassigned_node_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """A pod that is created with a node would bypass the scheduler."""
    sent = pod("born-there", gpu=1, gpumem=100)
    sent["spec"]["nodeName"] = "gpu-sim-0"
    assert "pod has node assigned" in refusal(lambda: namespace.create(sent))


@pytest.mark.parametrize("limits", [{"gpu": 1}, {"gpumem": 100}, {"gpu": 0, "gpumem": 100}])
def test_preassigned_pod_elsewhere_closes_the_node(
    tranche: Layout, namespace: Namespace, plain_namespace: Namespace, limits: dict[str, int]
) -> None:
    """By a user who may bind, elsewhere: the pod runs uncounted, so its node takes no GPU pod, and events say why."""
    sent = pod("born-there", **limits)
    sent["spec"]["nodeName"] = "gpu-sim-0"
    plain_namespace.create(sent)
    namespace.create(pod("next", node="gpu-sim-0", gpu=1, gpumem=100))
    # The owner of the next pod may not learn whose pod runs there.
    assert "UncountedPod: a pod runs here uncounted" in namespace.unplaced("next")
    for where in (plain_namespace.name, "default"):  # events about the pod, and about its node
        notes = wait.until(lambda where=where: uncounted_notes(tranche, where), what="event", timeout_s=PATIENCE_S)  # type: ignore[misc]
        assert f"pod {plain_namespace.name}/born-there runs there uncounted" in notes
        assert "delete the pod" in notes
    plain_namespace.delete("pod", "born-there")
    namespace.placed(1)


def uncounted_notes(layout: Layout, namespace: str) -> str:
    """Return the messages of the events about uncounted pods in a namespace."""
    events = client(layout).list("events", namespace=namespace, fields="reason=UncountedPod")
    return "\n".join(each["message"] for each in events)


@pytest.mark.parametrize("method", ["schedulerName", "label"])
def test_bypassing_the_scheduler_finds_no_capacity(tranche: Layout, namespace: Namespace, method: str) -> None:
    """A pod that opts out gets no card: nodes advertise none, so another scheduler finds no capacity."""
    sent = pod("around", gpu=1)
    if method == "label":
        sent["metadata"]["labels"] = {"gpu.scheduling/injection": "disabled"}
        namespace.create(sent)
        assert "Insufficient nvidia.com/gpu" in namespace.unplaced("around")
    else:
        sent["spec"]["schedulerName"] = "batch"
        namespace.create(sent)
    spec = namespace.pod("around")["spec"]
    assert "env" not in spec["containers"][0]
    assert "nodeName" not in spec
    assert all("nvidia.com/gpu" not in each["status"]["allocatable"] for each in nodes(tranche))


@pytest.mark.parametrize("obstacle", ["full", "cordoned"])
def test_selecting_a_card_by_uuid_bypasses_no_check(tranche: Layout, namespace: Namespace, obstacle: str) -> None:
    """A pod that names a card gets it only if the card is free and its node accepts pods."""
    namespace.create(pod("whole", node="gpu-sim-0", gpu=1))
    namespace.placed(1)
    (share,) = allocated_shares(namespace, "whole")
    selecting = pod("selecting", gpu=1, gpumem=100)
    selecting["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": share.uuid}
    try:
        if obstacle == "cordoned":
            namespace.api.patch("node", "gpu-sim-0", {"spec": {"unschedulable": True}})
            namespace.delete("pod", "whole")
        namespace.create(selecting)
        assert namespace.unplaced("selecting")
        assert "nodeName" not in namespace.pod("selecting")["spec"]
    finally:
        namespace.api.patch("node", "gpu-sim-0", {"spec": {"unschedulable": None}})
    if obstacle == "full":
        namespace.delete("pod", "whole")
    namespace.placed(1)
    assert [each.uuid for each in allocated_shares(namespace, "selecting")] == [share.uuid]


def allocated_shares(namespace: Namespace, name: str) -> tuple[CardShare, ...]:
    """Return the shares of the only container of a placed pod."""
    (shares,) = record.decode(namespace.pod(name)["metadata"]["annotations"][ALLOCATION]).containers.values()
    return shares


def nodes(layout: Layout) -> list[dict[str, Any]]:
    """Return every Node."""
    items: list[dict[str, Any]] = client(layout).list("nodes")
    return items


# ---- the node --------------------------------------------------------------------------------------------------------


def test_privileged_gpu_pod_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """It would see every card of its node."""
    sent = pod("mighty", gpu=1, gpumem=100)
    sent["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "container main is privileged" in refusal(lambda: namespace.create(sent))


def test_pod_security_restricted_admits_gpu_pods(tranche: Layout, namespace: Namespace) -> None:
    """Access through the node itself is left to Pod Security; GPU pods pass its strictest level."""
    client(namespace.layout).patch(
        "namespace", namespace.name, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    modest = pod("modest", node="gpu-sim-0", gpu=1, gpumem=100)
    modest["spec"] |= UNPRIVILEGED_POD
    modest["spec"]["containers"][0]["securityContext"] = UNPRIVILEGED
    mighty, mounting = copy.deepcopy(modest), copy.deepcopy(modest)
    for sent in (mighty, mounting):
        sent["spec"]["containers"][0].pop("resources")
    mighty["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    mounting["spec"]["volumes"] = [{"name": "dev", "hostPath": {"path": "/dev"}}]
    assert "violates PodSecurity" in refusal(lambda: namespace.create(mighty))
    assert "violates PodSecurity" in refusal(lambda: namespace.create(mounting))
    namespace.create(modest)
    namespace.placed(1)


# ---- the token of an agent -------------------------------------------------------------------------------------------


@pytest.fixture
def system(tranche: Layout) -> Namespace:
    """The system namespace."""
    return Namespace(tranche, "tranche-system")


@pytest.mark.kubelet
def test_mounted_token_is_bound_to_the_node(tranche_node: Layout, system: Namespace, tmp_path: Path) -> None:
    """The kubelet mounts such a token into an agent's pod without further configuration."""
    sent = pod("agent-token")
    sent["spec"] |= {"nodeName": tranche_node.node_name, "serviceAccountName": "tranche-agent", **UNPRIVILEGED_POD}
    sent["spec"]["containers"][0]["securityContext"] = UNPRIVILEGED
    system.create(sent)
    try:
        system.ready("agent-token")
        mounted = "/var/run/secrets/kubernetes.io/serviceaccount/token"
        token = system.kubectl("exec", "agent-token", "--", "cat", mounted).strip()
        identity = kubeconfig.token_kubeconfig(tranche_node, tmp_path / "stolen", token=token, user="agent")
        api, forged = client(tranche_node, kubeconfig=identity), {"metadata": {"annotations": {REGISTER: "[]"}}}
        assert refusal(lambda: api.patch("node", tranche_node.node_name, forged, dry_run=True)) == ""
        why = refusal(lambda: api.patch("node", "gpu-sim-1", forged, dry_run=True))
        assert f"is bound to node {tranche_node.node_name}" in why
    finally:
        system.delete("pod", "agent-token")


def test_forged_variables_are_managed_variables() -> None:
    """The variables that this file forges are the ones that Tranche manages."""
    assert owned("\n".join(f"{name}={value}" for name, value in GREED.items())) == GREED
