"""Attempts to use a card without an allocation: each attack of docs/threat-model.md, against the whole product."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from agent.publishing import heartbeat
from allocation.names import ALLOCATION
from allocation.settings import ResourceNames
from allocation.variables import TABLE, Ruling
from allocation.wire import environment, record
from lab import components, health, kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from lab.processes import Daemon
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.test_slice import exec_environment, owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from allocation.allocation import CardShare
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

CUDA_LIKE = "tranche.local/cuda-like:lab"  # an image that requests all devices
GREED = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    "CUDA_DEVICE_MEMORY_LIMIT": "999999m",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "999999m",
    "CUDA_DEVICE_SM_LIMIT": "100",
}
BLIND = {"NVIDIA_VISIBLE_DEVICES": "void"}
UNPRIVILEGED_POD = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
}
UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
DEBUG_POLICY = "may see none of them"


def refusal(namespace: Namespace, *arguments: str, stdin: str | None = None, identity: Path | None = None) -> str:
    """Run kubectl, which must fail; return the error."""
    with pytest.raises(LabError) as caught:
        kubectl.run(namespace.layout, "-n", namespace.name, *arguments, stdin=stdin, kubeconfig=identity)
    return caught.value.why


def refused(namespace: Namespace, manifest: dict[str, Any]) -> str:
    """Create an object, which must be rejected; return the error."""
    return refusal(namespace, "create", "-f", "-", stdin=json.dumps(manifest))


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


def running(namespace: Namespace, name: str) -> None:
    """Wait until a pod is ready."""
    namespace.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"pod/{name}")


def allocated_environment(namespace: Namespace, name: str) -> dict[str, str]:
    """Return the environment that follows from a placed pod's allocation."""
    return environment.values(allocated_shares(namespace, name))


@pytest.fixture
def dead_webhook(tranche: Layout) -> Iterator[Layout]:
    """The lab without its webhook, which is started again after the test."""
    daemon = Daemon(tranche, "webhook")
    daemon.stop()
    yield tranche
    component = components.component(tranche, "webhook")
    components.start(tranche, component)
    wait.until(lambda: health.probe(component.ready), what="webhook ready", timeout_s=PATIENCE_S, daemons=[daemon])


# ---- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.kubelet
@pytest.mark.parametrize("source", ["plain", "envFrom", "valueFrom"])
def test_user_environment_does_not_override_the_allocation(
    tranche_node: Layout, namespace: Namespace, source: str
) -> None:
    """However a user sets the managed variables, the container gets the values of its allocation."""
    namespace.kubectl("create", "configmap", "greed", *(f"--from-literal={name}={GREED[name]}" for name in GREED))
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
    running(namespace, "greedy")
    assert exec_environment(namespace, "greedy") == allocated_environment(namespace, "greedy")


@pytest.mark.kubelet
def test_container_without_gpu_request_sees_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """In a pod with a GPU container, no other container sees a card, by image, variable or ConfigMap."""
    namespace.kubectl("create", "configmap", "greed", *(f"--from-literal={name}={GREED[name]}" for name in GREED))
    sent = pod("pair", node=tranche_node.node_name, gpu=1, gpumem=3000)
    other = {**copy.deepcopy(sent["spec"]["containers"][0]), "name": "other", "image": CUDA_LIKE, "resources": {}}
    other["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    other["envFrom"] = [{"configMapRef": {"name": "greed"}}]
    sent["spec"]["containers"].append(other)
    namespace.create(sent)
    running(namespace, "pair")
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


@pytest.mark.parametrize("path", ["/var/run/nvidia-container-devices/all", "/var/run//./nvidia-container-devices/0"])
@pytest.mark.parametrize("limits", [{"gpu": 1, "gpumem": 100}, {}])
def test_device_request_by_volume_mount_is_rejected(
    tranche: Layout, namespace: Namespace, path: str, limits: dict[str, int]
) -> None:
    """This other way to request cards from NVIDIA's runtime is rejected, whether or not the pod requests a GPU."""
    sent = pod("mounted", **limits)
    sent["spec"]["volumes"] = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
    sent["spec"]["containers"][0]["volumeMounts"] = [{"name": "null", "mountPath": path}]
    assert "/var/run/nvidia-container-devices" in refused(namespace, sent)


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
    running(namespace, "looked-at")
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
    why = refusal(namespace, *debug("looked-at", "--profile", "sysadmin"))
    assert "container debugger is privileged" in why


def test_debug_container_is_guarded_without_the_webhook(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """The API server rejects a debug container that could see cards, and the error says how to add a blind one."""
    namespace.create(pod("looked-at", node="gpu-sim-0", gpu=1, gpumem=100), pod("ordinary"))
    namespace.placed(2)
    request.getfixturevalue("dead_webhook")
    void = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
    why = refusal(namespace, *debug("looked-at"))
    assert DEBUG_POLICY in why
    assert "kubectl debug --env NVIDIA_VISIBLE_DEVICES=void" in why
    assert DEBUG_POLICY in refusal(namespace, *debug("looked-at", *void, "--env", "CUDA_VISIBLE_DEVICES=0"))
    assert "weakens their limits" in refusal(
        namespace, *debug("looked-at", *void, "--env", "CUDA_MPS_PIPE_DIRECTORY=/x")
    )
    assert "is privileged" in refusal(namespace, *debug("looked-at", *void, "--profile", "sysadmin"))
    namespace.kubectl(*debug("looked-at", *void))
    namespace.kubectl(*debug("looked-at", *void, container="second"))
    namespace.kubectl(*debug("ordinary"))


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
        running(namespace, "placed")
    (before,) = namespace.placed(1)
    options = ("--subresource", subresource) if subresource else ()
    for value in ("forged", None):
        patch = json.dumps({"metadata": {"annotations": {key: value}}})
        # A subresource without annotations ignores them; one with annotations is guarded.
        try:
            namespace.kubectl("patch", "pod", "placed", *options, "--type", "merge", "-p", patch)
        except LabError as error:
            assert f"annotation {key}" in error.why, error.why  # noqa: PT017 -- both results are correct
    assert namespace.pod("placed")["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.kubelet
def test_resize_cannot_request_gpus(tranche_node: Layout, namespace: Namespace) -> None:
    """A running pod cannot become a GPU pod, or get a larger slice."""
    node = tranche_node.node_name
    namespace.create(pod("plain", node=node), pod("slice", node=node, gpu=1, gpumem=100))
    for name in ("plain", "slice"):
        running(namespace, name)
        limits = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 50000}
        patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]}}
        why = refusal(namespace, "patch", "pod", name, "--subresource=resize", "-p", json.dumps(patch))
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
    assert ALLOCATION in refusal(namespace, "annotate", "pod", "placed", f"{ALLOCATION}-")
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
    path = f"/api/v1/namespaces/{namespace.name}/pods/bound/binding"
    namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    running(namespace, "bound")
    assert set(exec_environment(namespace, "bound").values()) == {""}
    namespace.create(pod("next", node=node, gpu=1, gpumem=100))
    assert "UncountedPod: a pod runs here uncounted" in namespace.unplaced("next")
    namespace.delete("pod", "bound")
    namespace.placed(1)


def test_preassigned_node_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """A pod that is created with a node would bypass the scheduler."""
    sent = pod("born-there", gpu=1, gpumem=100)
    sent["spec"]["nodeName"] = "gpu-sim-0"
    assert "pod has node assigned" in refused(namespace, sent)


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


def test_quota_of_zero_keeps_preassigned_pods_out(tranche: Layout, plain_namespace: Namespace) -> None:
    """An administrator can close the previous gap with a ResourceQuota of 0 for each GPU resource."""
    hard = ",".join(f"requests.{name}=0" for name in ResourceNames().gpu_resources())
    plain_namespace.kubectl("create", "quota", "no-gpu", f"--hard={hard}")

    def is_refused(**limits: int) -> bool:
        try:
            sent = json.dumps(pod("born-there", **limits))
            plain_namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=sent)
        except LabError as error:
            return "exceeded quota" in error.why
        return False

    wait.until(lambda: is_refused(gpu=1), what="the quota in force", timeout_s=PATIENCE_S)
    for resource in ("gpumem", "percentage", "gpucores"):
        assert is_refused(**{resource: 10})
        assert is_refused(**{"gpu": 0, resource: 10})


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
            kubectl.run(namespace.layout, "cordon", "gpu-sim-0")
            namespace.delete("pod", "whole")
        namespace.create(selecting)
        assert namespace.unplaced("selecting")
        assert "nodeName" not in namespace.pod("selecting")["spec"]
    finally:
        kubectl.run(namespace.layout, "uncordon", "gpu-sim-0")
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


def test_handmade_gpu_pods_are_guarded_without_the_webhook(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """While the webhook is down, the API server itself rejects every kind of handmade GPU pod."""
    two = pod("template", gpu=1, gpumem=100)
    two["spec"]["containers"].append({**copy.deepcopy(two["spec"]["containers"][0]), "name": "other", "resources": {}})
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    prepared = json.loads(namespace.kubectl(*dry, stdin=json.dumps(two)))["spec"]
    request.getfixturevalue("dead_webhook")

    def attempt(change: Callable[[dict[str, Any]], object]) -> str:
        spec = copy.deepcopy(prepared)
        change(spec)
        sent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "handmade"}, "spec": spec}
        try:
            namespace.kubectl(*dry, stdin=json.dumps(sent))
        except LabError as error:
            return error.why
        return ""

    def entry(spec: dict[str, Any], container: int, name: str) -> dict[str, Any]:
        variable: dict[str, Any] = next(each for each in spec["containers"][container]["env"] if each["name"] == name)
        return variable

    other = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    switch = {"name": "CUDA_DISABLE_CONTROL", "value": "true"}
    mine = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
    assert attempt(lambda _: None) == ""
    for why, change in {
        "container main asks for a GPU": [
            lambda spec: spec["containers"][0].pop("env"),
            lambda spec: spec["containers"][0]["env"].append(mine),
            lambda spec: entry(spec, 0, "NVIDIA_VISIBLE_DEVICES")["valueFrom"]["fieldRef"].update(
                fieldPath="metadata.annotations['mine']"
            ),
        ],
        "container other asks for no GPU in a pod with one": [
            lambda spec: spec["containers"][1].pop("env"),
            lambda spec: spec["containers"][1]["env"].append(other),
            lambda spec: spec["containers"][1]["env"].append(mine),
        ],
        "container main sets CUDA_DISABLE_CONTROL": [lambda spec: spec["containers"][0]["env"].append(switch)],
        "container other sets CUDA_DISABLE_CONTROL": [lambda spec: spec["containers"][1]["env"].append(switch)],
        "container other is privileged": [
            lambda spec: spec["containers"][1].update(securityContext={"privileged": True}),
            lambda spec: spec["containers"][1].update(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        ],
        "pod has node assigned": [lambda spec: spec.update(nodeName="gpu-sim-0")],
    }.items():
        for each in change:
            assert why in attempt(each)


# ---- the node --------------------------------------------------------------------------------------------------------


def test_privileged_gpu_pod_is_rejected(tranche: Layout, namespace: Namespace) -> None:
    """It would see every card of its node."""
    sent = pod("mighty", gpu=1, gpumem=100)
    sent["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "container main is privileged" in refused(namespace, sent)


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
    assert "violates PodSecurity" in refused(namespace, mighty)
    assert "violates PodSecurity" in refused(namespace, mounting)
    namespace.create(modest)
    namespace.placed(1)


# ---- identities of the product ---------------------------------------------------------------------------------------


@pytest.fixture
def system(tranche: Layout) -> Namespace:
    """The system namespace."""
    return Namespace(tranche, "tranche-system")


def act(system: Namespace, identity: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl with an identity; return the error, empty if it succeeds."""
    try:
        kubectl.run(system.layout, "-n", system.name, *arguments, stdin=stdin, kubeconfig=identity)
    except LabError as error:
        return error.why
    return ""


def write_as_agent(system: Namespace, identity: Path, what: str, node: str) -> str:
    """Try to write false data about a node, as a dry run; return the error, empty if it succeeds.

    Like the agent, this applies objects, which needs no right to read them; a patch by kubectl does.
    """
    if what == "register":
        patch = {"metadata": {"annotations": {"hami.io/node-nvidia-register": "[]"}}}
        return act(system, identity, "patch", "node", node, "--dry-run=server", "-p", json.dumps(patch))
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": node}}
    body = {
        "spec": head | {"spec": {"nodeName": node}},
        "status": head | {"status": {"devices": [], "total": 0}},
        "lease": heartbeat.lease(node, identity="liar", seconds=3600, unix=0.0),
    }[what]
    return applied(system, identity, body, *(("--subresource=status",) if what == "status" else ()))


def applied(system: Namespace, identity: Path, body: dict[str, Any], *more: str) -> str:
    """Apply an object on the server as a dry run; return the error, empty if it succeeds."""
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    return act(system, identity, *apply, *more, stdin=json.dumps(body))


@pytest.mark.parametrize("what", ["status", "spec", "register", "lease"])
def test_agent_writes_for_its_own_node_only(tranche: Layout, system: Namespace, what: str) -> None:
    """Its token is bound to its node; writes about another node are rejected, whatever its role allows."""
    own = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-agent", node="gpu-sim-1"
    )
    assert "the token of this agent is bound to node gpu-sim-1" in write_as_agent(system, own, what, "gpu-sim-2")
    assert write_as_agent(system, own, what, "gpu-sim-1") == ""


@pytest.mark.parametrize("what", ["status", "spec", "register", "lease"])
def test_agent_token_without_a_node_writes_nothing(tranche: Layout, system: Namespace, what: str) -> None:
    """Such a token was created by hand or taken from a Secret."""
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-agent")
    assert "is bound to no node" in write_as_agent(system, identity, what, "gpu-sim-1")


def test_agent_cannot_write_the_leader_lease(tranche: Layout, system: Namespace) -> None:
    """Its role allows it to write Leases of the namespace, but not the scheduler's."""
    identity = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-agent", node="gpu-sim-1"
    )
    lease = heartbeat.lease("gpu-sim-1", identity="liar", seconds=3600, unix=0.0)
    lease["metadata"]["name"] = "tranche-scheduler"
    lease["spec"]["leaseTransitions"] = 2147483647
    assert "it may not write leases tranche-scheduler" in applied(system, identity, lease)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"kubernetes.io/hostname": "gpu-sim-2"}}},
        {"metadata": {"annotations": {"mine": "1"}}},
        {"metadata": {"annotations": {"mine": None}}},
        {"metadata": {"finalizers": ["mine/never"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}},
    ],
)
def test_agent_writes_only_one_annotation_of_its_node(
    tranche: Layout, system: Namespace, patch: dict[str, Any]
) -> None:
    """RBAC has no field rules, so the right to patch a Node would allow the agent to attract or evict every pod."""
    identity = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-agent", node="gpu-sim-1"
    )
    if patch == {"metadata": {"annotations": {"mine": None}}}:
        client(tranche).patch("node", "gpu-sim-1", {"metadata": {"annotations": {"mine": "1"}}})
    why = act(system, identity, "patch", "node", "gpu-sim-1", "--type=merge", "-p", json.dumps(patch))
    assert "nothing of its node gpu-sim-1 but the annotation hami.io/node-nvidia-register" in why


def test_node_with_a_long_name_has_its_own_heartbeat(tranche: Layout, system: Namespace, tmp_path: Path) -> None:
    """Its Lease name ends in a hash, because the node name is too long for the prefix; the agent may still write it."""
    name = ".".join(["n" * 62] * 4)
    client(tranche).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        bound = ("--bound-object-kind", "Node", "--bound-object-name", name)
        token = system.kubectl("create", "token", "tranche-agent", *bound).strip()
        identity = kubeconfig.token_kubeconfig(tranche, tmp_path / "agent", token=token, user="agent")
        assert write_as_agent(system, identity, "lease", name) == ""
        assert "it may not write leases agent-gpu-sim-1" in write_as_agent(system, identity, "lease", "gpu-sim-1")
    finally:
        client(tranche).delete("node", name)


@pytest.mark.kubelet
def test_mounted_token_is_bound_to_the_node(tranche_node: Layout, system: Namespace, tmp_path: Path) -> None:
    """The kubelet mounts such a token into an agent's pod without further configuration."""
    sent = pod("agent-token")
    sent["spec"] |= {"nodeName": tranche_node.node_name, "serviceAccountName": "tranche-agent", **UNPRIVILEGED_POD}
    sent["spec"]["containers"][0]["securityContext"] = UNPRIVILEGED
    system.create(sent)
    try:
        running(system, "agent-token")
        mounted = "/var/run/secrets/kubernetes.io/serviceaccount/token"
        token = system.kubectl("exec", "agent-token", "--", "cat", mounted).strip()
        identity = kubeconfig.token_kubeconfig(tranche_node, tmp_path / "stolen", token=token, user="agent")
        assert write_as_agent(system, identity, "register", tranche_node.node_name) == ""
        assert f"is bound to node {tranche_node.node_name}" in write_as_agent(system, identity, "register", "gpu-sim-1")
    finally:
        system.delete("pod", "agent-token")


def test_webhook_token_cannot_create_other_tokens(tranche: Layout, system: Namespace) -> None:
    """RBAC cannot limit a create to a name, and a Secret of the right type would hold a token of the scheduler."""
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-webhook")
    for name, kind in (("mine", "kubernetes.io/tls"), ("tranche-webhook-ca", "kubernetes.io/service-account-token")):
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "tranche-scheduler"}},
            "type": kind,
            "data": {"tls.crt": "", "tls.key": ""} if kind.endswith("tls") else {},
        }
        why = refusal(system, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(secret), identity=identity)
        assert "the webhook may create no Secret but tranche-webhook-ca" in why


def may(system: Namespace, account: str, verb: str, resource: str) -> bool:
    """Return whether a ServiceAccount has a right in the system namespace."""
    plain, _, subresource = resource.partition("/")
    user = ("--as", f"system:serviceaccount:tranche-system:{account}")
    try:
        output = system.kubectl("auth", "can-i", verb, plain, f"--subresource={subresource}", *user)
    except LabError:
        return False
    return output.strip() == "yes"


def test_no_identity_can_act_as_another(tranche: Layout, system: Namespace) -> None:
    """Only the scheduler may bind; none may impersonate, create tokens, or start pods in the system namespace."""
    accounts = ("tranche-agent", "tranche-webhook", "tranche-scheduler")
    questions = {
        ("create", "serviceaccounts/token"): (),
        ("create", "pods"): (),
        ("impersonate", "users"): (),
        ("create", "clusterrolebindings"): (),
        ("patch", "validatingadmissionpolicies"): (),
        ("create", "pods/binding"): ("tranche-scheduler",),
        ("patch", "pods"): (),
    }
    for (verb, resource), allowed in questions.items():
        for account in accounts:
            assert may(system, account, verb, resource) == (account in allowed), f"{account} {verb} {resource}"


def test_forged_variables_are_managed_variables() -> None:
    """The variables that this file forges are the ones that Tranche manages."""
    assert owned("\n".join(f"{name}={value}" for name, value in GREED.items())) == GREED
