"""Who wants a card that nobody gave him: each attack of docs/threat-model.md on the whole product."""

from __future__ import annotations

import copy
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from agent import heartbeat
from allocation import environment, record
from allocation.names import ALLOCATION
from lab import components, health, kubeconfig, kubectl, wait
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

CUDA_LIKE = "tranche.local/cuda-like:lab"  # an image that asks for all devices
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
    """Run kubectl, which must fail; answer in which words."""
    with pytest.raises(LabError) as caught:
        kubectl.run(namespace.layout, "-n", namespace.name, *arguments, stdin=stdin, kubeconfig=identity)
    return caught.value.why


def refused(namespace: Namespace, manifest: dict[str, Any]) -> str:
    """Create an object, which must be refused; answer in which words."""
    return refusal(namespace, "create", "-f", "-", stdin=json.dumps(manifest))


def create_warned(namespace: Namespace, manifest: dict[str, Any]) -> str:
    """Create an object; answer what kubectl said beside it."""
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


def given(namespace: Namespace, name: str) -> dict[str, str]:
    """Answer the environment that follows from a placed pod's allocation."""
    return environment.values(given_shares(namespace, name))


@pytest.fixture
def dead_webhook(tranche: Layout) -> Iterator[Layout]:
    """The lab without its webhook, which lives again when the test is over."""
    daemon = Daemon(tranche, "webhook")
    daemon.stop()
    yield tranche
    component = components.component(tranche, "webhook")
    components.start(tranche, component)
    wait.until(lambda: health.probe(component.ready), what="webhook ready", timeout_s=PATIENCE_S, daemons=[daemon])


# ---- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.kubelet
@pytest.mark.parametrize("way", ["plain", "envFrom", "valueFrom"])
def test_own_environment_does_not_reach_the_container(tranche_node: Layout, namespace: Namespace, way: str) -> None:
    """However a user brings our variables, the running container sees what it was given."""
    namespace.kubectl("create", "configmap", "greed", *(f"--from-literal={name}={GREED[name]}" for name in GREED))
    sent = pod("greedy", node=tranche_node.node_name, gpu=1, gpumem=3000, gpucores=30)
    container = sent["spec"]["containers"][0]
    match way:
        case "plain":
            container["env"] = [{"name": name, "value": value} for name, value in GREED.items()]
        case "envFrom":
            container["envFrom"] = [{"configMapRef": {"name": "greed"}}]
        case _:
            container["env"] = [
                {"name": name, "valueFrom": {"configMapKeyRef": {"name": "greed", "key": name}}} for name in GREED
            ]
    warnings = create_warned(namespace, sent)
    # What a config map holds is read by the kubelet, so nobody can warn of it; it counts for nothing all the same.
    assert warnings.count("is set by the scheduler, not by the pod") == (0 if way == "envFrom" else len(GREED))
    running(namespace, "greedy")
    assert exec_environment(namespace, "greedy") == given(namespace, "greedy")


@pytest.mark.kubelet
def test_own_environment_of_a_container_without_gpu(tranche_node: Layout, namespace: Namespace) -> None:
    """Beside a GPU container nobody else sees a card, by image, by variable or by config map."""
    namespace.kubectl("create", "configmap", "greed", *(f"--from-literal={name}={GREED[name]}" for name in GREED))
    sent = pod("pair", node=tranche_node.node_name, gpu=1, gpumem=3000)
    other = {**copy.deepcopy(sent["spec"]["containers"][0]), "name": "other", "image": CUDA_LIKE, "resources": {}}
    other["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    other["envFrom"] = [{"configMapRef": {"name": "greed"}}]
    sent["spec"]["containers"].append(other)
    namespace.create(sent)
    running(namespace, "pair")
    assert exec_environment(namespace, "pair", "other")["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_the_limiters_switch_is_taken_away(tranche: Layout, namespace: Namespace) -> None:
    """`CUDA_DISABLE_CONTROL` is removed with a warning; `LD_PRELOAD` is the user's own and stays."""
    sent = pod("switched", gpu=1, gpumem=100)
    mine = {"name": "LD_PRELOAD", "value": "/usr/lib/libjemalloc.so"}
    sent["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}, mine]
    assert "CUDA_DISABLE_CONTROL" in create_warned(namespace, sent)
    names = [entry["name"] for entry in namespace.pod("switched")["spec"]["containers"][0]["env"]]
    assert "CUDA_DISABLE_CONTROL" not in names
    assert "LD_PRELOAD" in names


@pytest.mark.parametrize("path", ["/var/run/nvidia-container-devices/all", "/var/run//./nvidia-container-devices/0"])
@pytest.mark.parametrize("limits", [{"gpu": 1, "gpumem": 100}, {}])
def test_visible_devices_by_volume_mount(
    tranche: Layout, namespace: Namespace, path: str, limits: dict[str, int]
) -> None:
    """The other way to ask NVIDIA's runtime for cards is refused, whether the pod asks for a GPU or not."""
    sent = pod("mounted", **limits)
    sent["spec"]["volumes"] = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
    sent["spec"]["containers"][0]["volumeMounts"] = [{"name": "null", "mountPath": path}]
    assert "/var/run/nvidia-container-devices" in refused(namespace, sent)


# ---- debug containers ------------------------------------------------------------------------------------------------


def debug(name: str, *more: str, container: str = "debugger") -> tuple[str, ...]:
    """Answer the arguments by which kubectl adds a container whose image asks for all devices."""
    return (
        *("debug", name, "--container", container, "--image", CUDA_LIKE, "--image-pull-policy", "Never"),
        *("--profile", "general", *more, "--", "sleep", "3600"),
    )


@pytest.mark.kubelet
def test_a_debug_container_sees_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """Not by its image and not by its own variables; also after the labels that opted the pod in are gone."""
    namespace.create(pod("looked-at", node=tranche_node.node_name, gpu=1, gpumem=3000))
    running(namespace, "looked-at")
    namespace.kubectl("label", "pod", "looked-at", "gpu.scheduling/injection=disabled")
    kubectl.run(namespace.layout, "label", "namespace", namespace.name, "gpu.scheduling/injection-")
    namespace.kubectl(*debug("looked-at", "--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "CUDA_VISIBLE_DEVICES=0"))

    def started() -> bool:
        statuses = namespace.pod("looked-at")["status"].get("ephemeralContainerStatuses", [])
        return any("running" in each["state"] for each in statuses)

    wait.until(started, what="a running debug container", timeout_s=PATIENCE_S)
    assert exec_environment(namespace, "looked-at", "debugger") == BLIND


def test_a_privileged_debug_container_is_refused(tranche: Layout, namespace: Namespace) -> None:
    """It would see every card of the node."""
    namespace.create(pod("looked-at", node="gpu-sim-0", gpu=1, gpumem=100))
    namespace.placed(1)
    why = refusal(namespace, *debug("looked-at", "--profile", "sysadmin"))
    assert "container debugger is privileged" in why


def test_a_debug_container_without_the_webhook(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """The API server refuses what nobody made blind, and says how to do that oneself."""
    namespace.create(pod("looked-at", node="gpu-sim-0", gpu=1, gpumem=100), pod("ordinary"))
    namespace.placed(2)
    request.getfixturevalue("dead_webhook")
    void = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
    why = refusal(namespace, *debug("looked-at"))
    assert DEBUG_POLICY in why
    assert "kubectl debug --env NVIDIA_VISIBLE_DEVICES=void" in why
    assert DEBUG_POLICY in refusal(namespace, *debug("looked-at", *void, "--env", "CUDA_VISIBLE_DEVICES=0"))
    assert "is privileged" in refusal(namespace, *debug("looked-at", *void, "--profile", "sysadmin"))
    namespace.kubectl(*debug("looked-at", *void))
    namespace.kubectl(*debug("looked-at", *void, container="second"))
    namespace.kubectl(*debug("ordinary"))


# ---- annotations, labels, bindings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subresource", ["", "status", "ephemeralcontainers", pytest.param("resize", marks=pytest.mark.kubelet)]
)
@pytest.mark.parametrize("key", ["cuda-visible-devices.gpu.scheduling/main", ALLOCATION, "hami.io/bind-phase"])
def test_an_allocation_changes_by_no_way(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest, subresource: str, key: str
) -> None:
    """Added, changed or removed, through the pod or through any of its subresources, by an administrator even."""
    node = "gpu-sim-0"
    if subresource == "resize":  # only a kubelet says that its pods can be resized
        request.getfixturevalue("node_support")
        node = tranche.node_name
    namespace.create(pod("placed", node=node, gpu=1, gpumem=100))
    if subresource == "resize":
        running(namespace, "placed")
    (before,) = namespace.placed(1)
    how = ("--subresource", subresource) if subresource else ()
    for value in ("forged", None):
        patch = json.dumps({"metadata": {"annotations": {key: value}}})
        # A subresource that takes no annotations ignores them; one that takes them is guarded.
        try:
            namespace.kubectl("patch", "pod", "placed", *how, "--type", "merge", "-p", patch)
        except LabError as error:
            assert f"annotation {key}" in error.why, error.why  # noqa: PT017 -- both answers are right
    assert namespace.pod("placed")["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.kubelet
def test_a_resize_asks_for_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """A running pod cannot turn itself into one with a GPU, or get a larger slice."""
    node = tranche_node.node_name
    namespace.create(pod("plain", node=node), pod("slice", node=node, gpu=1, gpumem=100))
    for name in ("plain", "slice"):
        running(namespace, name)
        limits = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 50000}
        patch = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]}}
        why = refusal(namespace, "patch", "pod", name, "--subresource=resize", "-p", json.dumps(patch))
        assert "resize" in why or "only cpu and memory resources are mutable" in why


def test_flipped_labels_free_nobody(tranche: Layout, namespace: Namespace) -> None:
    """A pod stays managed when its namespace's label goes or its own is flipped: neither gives it other cards."""
    namespace.create(pod("placed", node="gpu-sim-0", gpu=1, gpumem=100))
    (before,) = namespace.placed(1)
    kubectl.run(namespace.layout, "label", "namespace", namespace.name, "gpu.scheduling/injection-")
    namespace.kubectl("label", "pod", "placed", "gpu.scheduling/injection=disabled", "hami.io/webhook=ignore")
    assert ALLOCATION in refusal(namespace, "annotate", "pod", "placed", f"{ALLOCATION}-")
    namespace.kubectl(*debug("placed"))
    (added,) = namespace.pod("placed")["spec"]["ephemeralContainers"]
    assert added["env"] == [{"name": name, "value": value} for name, value in BLIND.items()]
    assert namespace.pod("placed")["metadata"]["annotations"] == before["metadata"]["annotations"]


@pytest.mark.kubelet
def test_a_direct_binding_gives_no_card(tranche_node: Layout, namespace: Namespace) -> None:
    """Who may bind can put a GPU pod on a node, but not give it a card; the node takes no GPU pod until it is gone."""
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
    assert f"pod {namespace.name}/bound runs here uncounted" in namespace.unplaced("next")
    namespace.kubectl("delete", "pod", "bound", "--wait=true")
    namespace.placed(1)


def test_a_node_name_is_refused(tranche: Layout, namespace: Namespace) -> None:
    """A pod that is born on a node passes no scheduler."""
    sent = pod("born-there", gpu=1, gpumem=100)
    sent["spec"]["nodeName"] = "gpu-sim-0"
    assert "pod has node assigned" in refused(namespace, sent)


def test_a_node_name_elsewhere_closes_the_node(
    tranche: Layout, namespace: Namespace, plain_namespace: Namespace
) -> None:
    """Where nobody opted in the pod runs, uncounted; so its node takes no GPU pod, and says which one is in the way."""
    sent = pod("born-there", gpu=1)
    sent["spec"]["nodeName"] = "gpu-sim-0"
    plain_namespace.create(sent)
    namespace.create(pod("next", node="gpu-sim-0", gpu=1, gpumem=100))
    assert f"pod {plain_namespace.name}/born-there runs here uncounted" in namespace.unplaced("next")
    plain_namespace.kubectl("delete", "pod", "born-there")
    namespace.placed(1)


def test_a_quota_of_zero_keeps_strangers_out(tranche: Layout, plain_namespace: Namespace) -> None:
    """What an administrator can do about the line before: Kubernetes' own quota."""
    plain_namespace.kubectl("create", "quota", "no-gpu", "--hard=requests.nvidia.com/gpu=0")

    def is_refused() -> bool:
        try:
            sent = json.dumps(pod("born-there", gpu=1))
            plain_namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=sent)
        except LabError as error:
            return "exceeded quota" in error.why
        return False

    wait.until(is_refused, what="the quota in force", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("way", ["schedulerName", "label"])
def test_going_round_the_scheduler_finds_no_capacity(tranche: Layout, namespace: Namespace, way: str) -> None:
    """Who opts out gets no card: nodes advertise none, so another scheduler finds no room and binds nothing."""
    sent = pod("around", gpu=1)
    if way == "label":
        sent["metadata"]["labels"] = {"gpu.scheduling/injection": "disabled"}
        namespace.create(sent)
        assert "Insufficient nvidia.com/gpu" in namespace.unplaced("around")
    else:
        sent["spec"]["schedulerName"] = "batch"
        namespace.create(sent)
    found = namespace.pod("around")
    assert "env" not in found["spec"]["containers"][0]
    assert "nodeName" not in found["spec"]
    assert all("nvidia.com/gpu" not in each["status"]["allocatable"] for each in nodes(tranche))


@pytest.mark.parametrize("obstacle", ["full", "cordoned"])
def test_wishing_for_a_card_widens_nothing(tranche: Layout, namespace: Namespace, obstacle: str) -> None:
    """Who names a card may still only have it where it is free and its node takes pods."""
    namespace.create(pod("whole", node="gpu-sim-0", gpu=1))
    namespace.placed(1)
    (share,) = given_shares(namespace, "whole")
    wishing = pod("wishing", gpu=1, gpumem=100)
    wishing["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": share.uuid}
    try:
        if obstacle == "cordoned":
            kubectl.run(namespace.layout, "cordon", "gpu-sim-0")
            namespace.kubectl("delete", "pod", "whole", "--wait=true")
        namespace.create(wishing)
        assert namespace.unplaced("wishing")
        assert "nodeName" not in namespace.pod("wishing")["spec"]
    finally:
        kubectl.run(namespace.layout, "uncordon", "gpu-sim-0")
    if obstacle == "full":
        namespace.kubectl("delete", "pod", "whole", "--wait=true")
    namespace.placed(1)
    assert [each.uuid for each in given_shares(namespace, "wishing")] == [share.uuid]


def given_shares(namespace: Namespace, name: str) -> tuple[CardShare, ...]:
    """Answer what the one container of a placed pod was given."""
    (shares,) = record.decode(namespace.pod(name)["metadata"]["annotations"][ALLOCATION]).containers.values()
    return shares


def nodes(layout: Layout) -> list[dict[str, Any]]:
    """Answer every Node."""
    found: list[dict[str, Any]] = kubectl.get(layout, "nodes")["items"]
    return found


def test_handmade_pods_without_the_webhook(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """While the webhook is dead the API server itself sees every way to make a GPU pod by hand."""
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
        found: dict[str, Any] = next(each for each in spec["containers"][container]["env"] if each["name"] == name)
        return found

    other = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    switch = {"name": "CUDA_DISABLE_CONTROL", "value": "true"}
    mine = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
    assert attempt(lambda _: None) == ""
    for why, change in {
        "container main asks for a GPU": [
            lambda spec: spec["containers"][0].pop("env"),
            lambda spec: spec["containers"][0]["env"].append(mine),
            lambda spec: spec["containers"][0]["env"].append(switch),
            lambda spec: entry(spec, 0, "NVIDIA_VISIBLE_DEVICES")["valueFrom"]["fieldRef"].update(
                fieldPath="metadata.annotations['mine']"
            ),
        ],
        "container other asks for no GPU in a pod with one": [
            lambda spec: spec["containers"][1].pop("env"),
            lambda spec: spec["containers"][1]["env"].append(other),
            lambda spec: spec["containers"][1]["env"].append(mine),
        ],
        "container other is privileged": [
            lambda spec: spec["containers"][1].update(securityContext={"privileged": True})
        ],
        "pod has node assigned": [lambda spec: spec.update(nodeName="gpu-sim-0")],
    }.items():
        for each in change:
            assert why in attempt(each)


# ---- the node --------------------------------------------------------------------------------------------------------


def test_a_privileged_gpu_pod_is_refused(tranche: Layout, namespace: Namespace) -> None:
    """It would see every card of its node."""
    sent = pod("mighty", gpu=1, gpumem=100)
    sent["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert "container main is privileged" in refused(namespace, sent)


def test_pod_security_keeps_the_node_closed_and_lets_gpu_pods_in(tranche: Layout, namespace: Namespace) -> None:
    """Who goes round us by the node itself is Pod Security's affair; our pods go by its strictest rule."""
    kubectl.run(namespace.layout, "label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
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


# ---- our own identities ----------------------------------------------------------------------------------------------


@pytest.fixture
def system(tranche: Layout) -> Namespace:
    """The namespace of our own objects."""
    return Namespace(tranche, "tranche-system")


def act(system: Namespace, identity: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl with an identity; answer why it is refused, empty where it is not."""
    try:
        kubectl.run(system.layout, "-n", system.name, *arguments, stdin=stdin, kubeconfig=identity)
    except LabError as error:
        return error.why
    return ""


def lie(system: Namespace, identity: Path, what: str, node: str) -> str:
    """Try what a lying agent would like to write about a node; answer why it is refused, empty where it is not.

    As the agent does: an apply asks for no right to read, a patch by kubectl does.
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
    """Apply an object on the server's side without keeping it; answer why it is refused, empty where it is not."""
    how = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    return act(system, identity, *how, *more, stdin=json.dumps(body))


@pytest.mark.parametrize("what", ["status", "spec", "register", "lease"])
def test_an_agent_speaks_for_its_own_node_only(tranche: Layout, system: Namespace, what: str) -> None:
    """Its token is bound to its node; what it writes of another one is refused, whatever its role allows."""
    own = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-agent", node="gpu-sim-1"
    )
    assert "the token of this agent is bound to node gpu-sim-1" in lie(system, own, what, "gpu-sim-2")
    assert lie(system, own, what, "gpu-sim-1") == ""


@pytest.mark.parametrize("what", ["status", "spec", "register", "lease"])
def test_an_agents_token_without_a_node_writes_nothing(tranche: Layout, system: Namespace, what: str) -> None:
    """One that was made by hand, or taken from a Secret."""
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-agent")
    assert "is bound to no node" in lie(system, identity, what, "gpu-sim-1")


def test_an_agent_does_not_touch_who_leads(tranche: Layout, system: Namespace) -> None:
    """Its role lets it write Leases of the namespace; the scheduler's is not its own."""
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
def test_an_agent_writes_one_annotation_of_its_node(tranche: Layout, system: Namespace, patch: dict[str, Any]) -> None:
    """RBAC knows no fields: the right to patch a Node would be the right to attract or expel every pod."""
    identity = kubeconfig.service_account_kubeconfig(
        tranche, namespace="tranche-system", name="tranche-agent", node="gpu-sim-1"
    )
    if patch == {"metadata": {"annotations": {"mine": None}}}:
        kubectl.run(tranche, "annotate", "node", "gpu-sim-1", "mine=1", "--overwrite")
    why = act(system, identity, "patch", "node", "gpu-sim-1", "--type=merge", "-p", json.dumps(patch))
    assert "nothing of its node gpu-sim-1 but the annotation hami.io/node-nvidia-register" in why


def test_a_node_with_a_long_name_has_its_heartbeat(tranche: Layout, system: Namespace, tmp_path: Path) -> None:
    """Its Lease ends in a hash, because the name leaves no room for the prefix; it is its own all the same."""
    name = ".".join(["n" * 62] * 4)
    kubectl.apply(tranche, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        bound = ("--bound-object-kind", "Node", "--bound-object-name", name)
        token = system.kubectl("create", "token", "tranche-agent", *bound).strip()
        identity = kubeconfig.token_kubeconfig(tranche, tmp_path / "agent", token=token, user="agent")
        assert lie(system, identity, "lease", name) == ""
        assert "it may not write leases gpu-gpu-sim-1" in lie(system, identity, "lease", "gpu-sim-1")
    finally:
        kubectl.run(tranche, "delete", "node", name)


@pytest.mark.kubelet
def test_the_token_that_a_pod_gets_is_bound_to_its_node(
    tranche_node: Layout, system: Namespace, tmp_path: Path
) -> None:
    """What the kubelet mounts into an agent's pod is such a token, without anything to be set up for it."""
    sent = pod("agent-token")
    sent["spec"] |= {"nodeName": tranche_node.node_name, "serviceAccountName": "tranche-agent", **UNPRIVILEGED_POD}
    sent["spec"]["containers"][0]["securityContext"] = UNPRIVILEGED
    system.create(sent)
    try:
        running(system, "agent-token")
        mounted = "/var/run/secrets/kubernetes.io/serviceaccount/token"
        token = system.kubectl("exec", "agent-token", "--", "cat", mounted).strip()
        identity = kubeconfig.token_kubeconfig(tranche_node, tmp_path / "stolen", token=token, user="agent")
        assert lie(system, identity, "register", tranche_node.node_name) == ""
        assert f"is bound to node {tranche_node.node_name}" in lie(system, identity, "register", "gpu-sim-1")
    finally:
        system.kubectl("delete", "pod", "agent-token", "--wait=true")


def test_the_webhooks_token_makes_no_other_token(tranche: Layout, system: Namespace) -> None:
    """A role cannot limit a create to a name; a Secret of the right type would hold a token of the scheduler's."""
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
    """Whether a ServiceAccount may do something in the namespace of our own objects."""
    plain, _, subresource = resource.partition("/")
    who = ("--as", f"system:serviceaccount:tranche-system:{account}")
    try:
        answer = system.kubectl("auth", "can-i", verb, plain, f"--subresource={subresource}", *who)
    except LabError:
        return False
    return answer.strip() == "yes"


def test_no_identity_of_ours_acts_for_another(tranche: Layout, system: Namespace) -> None:
    """None may bind but the scheduler, none may impersonate, make tokens, or start pods where our accounts are."""
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


def test_owned_is_what_the_tests_look_at() -> None:
    """The variables that this page forges are the ones that Tranche owns."""
    assert owned("\n".join(f"{name}={value}" for name, value in GREED.items())) == GREED
