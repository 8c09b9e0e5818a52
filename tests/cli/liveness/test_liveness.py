"""The output of `kubectl gpu` about an installation that does not work, on a real API server in each state."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.publishing import publisher
from allocation.inventory import Card, NodeInventory
from allocation.names import SYSTEM_NAMESPACE
from cluster.gpu_node_status import status_of
from lab import kubectl, wait
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.scheduler.support import claims as gpu_claims
from tests.support import gpu_command
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
SYSTEM = "tranche-system"
TEAM = "live-team"
NODE = "live-1"
pytestmark = pytest.mark.apiserver

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": TEAM},
    "spec": {
        "schedulerName": "tranche",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],  # no kubelet removes the taint of the node
        "containers": [
            {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}}}
        ],
    },
}
NEW_POD = {**POD, "metadata": {"name": "new", "namespace": TEAM}, "spec": {**POD["spec"], "schedulerName": ""}}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
ENDPOINTS = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {
        "name": "live-webhook",
        "namespace": SYSTEM,
        "labels": {"kubernetes.io/service-name": "tranche-webhook", "endpointslice.kubernetes.io/managed-by": "a-test"},
    },
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}}],
    "ports": [{"name": "reviews", "port": 8443}],
}


def lease(name: str, *, age: float = 0.0, holder: str = "scheduler-0") -> dict[str, Any]:
    """Return a Lease in tranche-system with a duration of an hour, renewed `age` seconds ago."""
    renewed = datetime.fromtimestamp(time.time() - age, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": renewed},
    }


def vouch(layout: Layout, *, age: float = 0.0) -> None:
    """Write the heartbeat Lease of the node's agent."""
    made = publisher.heartbeat(NODE, identity="agent", seconds=3600, unix=time.time() - age)
    client(layout).apply(made)


def system(layout: Layout, *arguments: str) -> str:
    """Run kubectl in namespace tranche-system."""
    return kubectl.run(layout, "-n", SYSTEM, *arguments)


@pytest.fixture
def installed(empty_cluster: Layout) -> Layout:
    """A control plane with manifests/install and simulated parts, all of which seem to work; the first test begins it.

    So does the one after the uninstallation, whichever that is.
    """
    if client(empty_cluster).find("namespace", SYSTEM_NAMESPACE) is None:
        _install(empty_cluster)
    return empty_cluster


def _install(empty_cluster: Layout) -> None:
    labels = {"gpu.scheduling/injection": "enabled"}
    client(empty_cluster).apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": labels}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": TEAM}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer", "namespace": TEAM}},
        POD,
    )
    crds = ROOT / "manifests" / "base" / "crds"
    kubectl.run(empty_cluster, "apply", "-f", str(crds))
    kubectl.run(empty_cluster, "wait", "--for=condition=Established", "crd", "--all")
    kubectl.run(empty_cluster, "apply", "-k", str(ROOT / "manifests" / "install"))
    report = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": NODE}}
    client(empty_cluster).apply(
        {**report, "spec": {"nodeName": NODE}},
        RUNTIME_CLASS,
        ENDPOINTS,
        lease("tranche-scheduler"),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "live-viewer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tranche-viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": TEAM}],
        },
    )
    vouch(empty_cluster)
    inventory = NodeInventory(NODE, (Card(uuid=f"GPU-{NODE}", index=0, memory_mib=40960),))
    status = json.dumps({"status": msgspec.to_builtins(status_of(inventory))})
    kubectl.run(empty_cluster, "patch", "gns", NODE, "--subresource=status", "--type=merge", "-p", status)
    allocatable = {"status": {"allocatable": {"pods": "110", "cpu": "8", "memory": "8Gi"}}}
    kubectl.run(
        empty_cluster, "patch", "node", NODE, "--subresource=status", "--type=merge", "-p", json.dumps(allocatable)
    )
    bundles = [{"op": "add", "path": f"/webhooks/{each}/clientConfig/caBundle", "value": "QQ=="} for each in range(4)]
    kubectl.run(
        empty_cluster, "patch", "mutatingwebhookconfiguration", "tranche", "--type=json", "-p", json.dumps(bundles)
    )


@pytest.fixture
def gpu(installed: Layout) -> Gpu:
    """Run `kubectl gpu` as a user with the viewer's role, or as administrator."""

    def run(*arguments: str, stdin: str = "", account: str = "viewer") -> "subprocess.CompletedProcess[str]":
        identity = installed.kubeconfig
        if account:
            identity = service_account_kubeconfig(installed, namespace=TEAM, name=account)
        return gpu_command.run(identity, *arguments, "-n", TEAM, stdin=stdin)

    return run


def simulate(gpu: Gpu, *options: str) -> "subprocess.CompletedProcess[str]":
    """Simulate a new pod."""
    return gpu("simulate", "-f", "-", *options, stdin=json.dumps(NEW_POD))


def preflight(gpu: Gpu, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run preflight as administrator."""
    return gpu("preflight", *options, account="")


def problems(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """Return the messages of the parts that do not work, from JSON output."""
    parts = json.loads(done.stdout)["liveness"]["parts"]
    return {each["name"]: each["message"] for each in parts if each["state"] in ("broken", "missing")}


def test_a_working_installation_adds_nothing_to_the_output(gpu: Gpu) -> None:
    """A viewer has the right to read every part, and the text output begins with the answer."""
    done = simulate(gpu)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"pod {TEAM}/new would go to {NODE}, card 0\n")
    assert gpu("explain", "train").stdout.startswith(f"pod {TEAM}/train would go to {NODE}, card 0\n")
    result = json.loads(simulate(gpu, "-o", "json").stdout)
    assert {each["state"] for each in result["liveness"]["parts"]} == {"working"}
    assert {each["name"] for each in result["liveness"]["parts"]} == {"webhook", "RuntimeClass", "scheduler", "agents"}
    report = preflight(gpu)
    assert (report.returncode, report.stdout.splitlines()[0][:20]) == (0, "0 things to do first"), report.stdout


def test_a_viewer_has_the_right_to_read_the_claims_of_pods(installed: Layout, gpu: Gpu) -> None:
    """`simulate` and `inject` find a claim in the cluster, and both say of another one that it is missing."""
    client(installed).apply(gpu_claims.manifest("whole", namespace=TEAM))

    def ask(command: str, name: str) -> "subprocess.CompletedProcess[str]":
        metadata = {**NEW_POD["metadata"], "annotations": {"gpu.scheduling/claim": name}}
        spec = {**NEW_POD["spec"], "containers": [{"name": "main", "image": "i"}]}
        return gpu(command, "-f", "-", stdin=json.dumps({**NEW_POD, "metadata": metadata, "spec": spec}))

    simulated = ask("simulate", "whole")
    assert (simulated.returncode, simulated.stderr) == (0, "")
    assert simulated.stdout.startswith(
        f"pod {TEAM}/new would go to {NODE}, card 0\nGpuClaim: whole (Exclusive)\nrequests: 1 whole card"
    )
    injected = ask("inject", "whole")
    assert injected.returncode == 0
    assert "nvidia.com/gpucores" in injected.stdout
    for command in ("simulate", "inject"):
        missing = ask(command, "gone")
        assert missing.returncode == 1
        assert "GpuClaim gone" in missing.stdout + missing.stderr
    assert f"GpuClaim gone does not exist in namespace {TEAM}" in ask("simulate", "gone").stdout


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (lease("tranche-scheduler", age=7200), "by scheduler-0, 7200 s ago"),
        (lease("tranche-scheduler", holder=""), "has no holder"),
        (None, "does not exist: it was never held"),
    ],
    ids=["expired", "released", "deleted"],
)
def test_without_a_leader_the_output_names_the_lease(
    installed: Layout, gpu: Gpu, left: dict[str, Any] | None, reason: str
) -> None:
    """The Lease precedes the answer, which states its condition; the exit code tells scripts."""
    system(installed, "delete", "lease", "tranche-scheduler")
    if left is not None:
        client(installed).apply(left)
    try:
        lines = gpu("explain", "train").stdout.splitlines()
        assert lines[0] == "NOT WORKING"
        assert lines[1].startswith("  scheduler: Lease tranche-system/tranche-scheduler ")
        assert reason[:12] in lines[1]
        assert "describe" in lines[2]
        assert lines[4] == f"pod {TEAM}/train would go to {NODE}, card 0, but only once a scheduler leads"
        done = simulate(gpu, "-o", "json")
        assert (done.returncode, list(problems(done))) == (1, ["scheduler"])
        report = preflight(gpu)
        assert report.returncode == 1
        assert report.stdout.splitlines()[0] == "Tranche does not work: scheduler (see BLOCKS)"
        assert "Lease tranche-system/tranche-scheduler" in report.stdout
    finally:
        client(installed).apply(lease("tranche-scheduler"))


def test_an_observed_renewal_proves_a_leader_with_a_slow_clock(installed: Layout, gpu: Gpu) -> None:
    """An observed renewal counts more than a comparison of clocks."""
    client(installed).apply(lease("tranche-scheduler", age=7200))
    child = subprocess.Popen(
        [sys.executable, "-m", "cli", "explain", "train", "--kubeconfig", str(installed.kubeconfig), "-n", TEAM],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    age = 7200.0
    while child.poll() is None:
        age -= 1
        client(installed).apply(lease("tranche-scheduler", age=age))
    output = child.communicate()[0]
    client(installed).apply(lease("tranche-scheduler"))
    assert output.startswith(f"pod {TEAM}/train would go to {NODE}, card 0\n")


def test_webhook_pods_without_an_image_are_reported(installed: Layout, gpu: Gpu) -> None:
    """The output names the Service without endpoints and the kubelet's message about one of its pods."""

    def pod() -> str:
        found = system(installed, "get", "pods", "-l", "app.kubernetes.io/component=webhook", "-o", "name")
        return found.split()[0].removeprefix("pod/") if found else ""

    name = wait.until(pod, what="a pod of the webhook's Deployment", timeout_s=PATIENCE_S)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "tranche:0.1.0 not found"}}
    status = {"name": "webhook", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
    patch = json.dumps({"status": {"containerStatuses": [status]}})
    for each in system(installed, "get", "pods", "-l", "app.kubernetes.io/component=webhook", "-o", "name").split():
        system(installed, "patch", each, "--subresource=status", "--type=merge", "-p", patch)
    system(installed, "delete", "endpointslice", "live-webhook")
    try:
        done = simulate(gpu)
        lines = done.stdout.splitlines()
        assert (done.returncode, lines[0]) == (1, "NOT WORKING")
        assert "webhook: Service tranche-system/tranche-webhook has no ready endpoint (pod tranche-webhook-" in lines[1]
        assert "ErrImagePull: tranche:0.1.0 not found): new GPU pods in opted-in namespaces are refused" in lines[1]
        assert f"describe pod {name[:16]}" in lines[2]
        assert lines[4].endswith(", but only once the webhook responds")
        assert "but only" not in gpu("explain", "train").stdout  # it was already admitted
        report = preflight(gpu)
        assert report.returncode == 1
        assert "ErrImagePull" in report.stdout.partition("BLOCKS")[2]
    finally:
        client(installed).apply(ENDPOINTS)


def test_a_missing_runtime_class_is_reported(installed: Layout, gpu: Gpu) -> None:
    """The installed configuration writes this RuntimeClass into every GPU pod."""
    client(installed).delete("runtimeclass", "nvidia")
    try:
        done = simulate(gpu, "-o", "json")
        assert (done.returncode, list(problems(done))) == (1, ["RuntimeClass"])
        report = preflight(gpu)
        assert report.returncode == 1
        assert "RuntimeClass nvidia" in report.stdout.partition("BLOCKS")[2]
    finally:
        client(installed).apply(RUNTIME_CLASS)


def test_silent_agents_are_reported(installed: Layout, gpu: Gpu) -> None:
    """The output does not suggest other nodes if the agents are what is missing."""
    vouch(installed, age=7200)
    try:
        done = gpu("explain", "train")
        lines = done.stdout.splitlines()
        assert lines[1].startswith(
            "  agents: Leases of agents in tranche-system are not renewed on 1 of 1 nodes (live-1"
        )
        assert "other nodes" not in done.stdout
        assert "their agents are silent" in lines[4]
        assert simulate(gpu).returncode == 1
        assert preflight(gpu).returncode == 1
    finally:
        vouch(installed)


def test_a_missing_policy_blocks(installed: Layout, gpu: Gpu) -> None:
    """An installation without one of its policies is not clear."""
    client(installed).delete("validatingadmissionpolicy", "tranche-debug")
    try:
        report = preflight(gpu)
        assert report.returncode == 1
        assert "ValidatingAdmissionPolicy tranche-debug" in report.stdout.partition("BLOCKS")[2]
    finally:
        kubectl.run(installed, "apply", "-k", str(ROOT / "manifests" / "base"))


def test_in_extender_mode_kube_scheduler_must_lead_as_well(installed: Layout, gpu: Gpu) -> None:
    """The mode comes from the flags of the installed Deployment."""
    flags = [
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/args",
            "value": [
                "--extender",
                "--host=127.0.0.1",
                "--kube-scheduler-lease-namespace=tranche-system",
                "--kube-scheduler-lease-name=tranche-kube-scheduler",
            ],
        }
    ]
    system(installed, "patch", "deployment", "tranche-scheduler", "--type=json", "-p", json.dumps(flags))
    try:
        assert list(problems(simulate(gpu, "-o", "json"))) == ["kube-scheduler"]
        assert json.loads(preflight(gpu, "-o", "json").stdout)["mode"] == "extender"
        client(installed).apply(lease("tranche-kube-scheduler"))
        assert problems(simulate(gpu, "-o", "json")) == {}
    finally:
        undo = [{"op": "remove", "path": "/spec/template/spec/containers/0/args"}]
        system(installed, "patch", "deployment", "tranche-scheduler", "--type=json", "-p", json.dumps(undo))


def test_after_an_uninstall_every_command_shows_how_to_install(installed: Layout, gpu: Gpu) -> None:
    """Preflight reports a remaining pod, which nothing will place, as a blocker."""
    kubectl.run(installed, "delete", "-k", str(ROOT / "manifests" / "install"), "--wait=false")
    wait.until(
        lambda: not kubectl.run(installed, "get", "crd", "gpunodestatuses.gpu.scheduling", "--ignore-not-found"),
        what="the end of the definition",
        timeout_s=PATIENCE_S,
    )
    for arguments in (("explain", "train"), ("simulate", "-f", "-"), ("top",)):
        done = gpu(*arguments, stdin=json.dumps(NEW_POD), account="")
        assert (done.returncode, done.stdout) == (1, "")
        assert "error: Tranche is not installed in this cluster" in done.stderr
        assert "kubectl apply -k manifests/install" in done.stderr
    report = preflight(gpu)
    assert report.returncode == 1
    assert report.stdout.startswith("Tranche is not installed: no GPU pod is admitted or placed by it; install it with")
    assert f"pod {TEAM}/train" in report.stdout.partition("BLOCKS")[2]
    wait.until(
        lambda: client(installed).find("namespace", SYSTEM_NAMESPACE) is None,
        what="the end of the installation",
        timeout_s=PATIENCE_S,
    )
