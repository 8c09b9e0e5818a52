"""A HAMi cluster migrates and returns: the steps of docs/hami.md on a real API server, with a simulated HAMi."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import HAMI_ALLOCATED
from allocation.wire import hami
from lab import components, kubeconfig, kubectl, manifests, wait
from lab.client import client
from lab.errors import LabError
from tests.support import gpu_command
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit, truth
from tests.system.support.hami_nodes import LOCK, NODES, component, delete, locks, served_nodes
from tests.system.support.hami_plugin import MEMORY_MIB
from tests.system.test_hami_nodes import on_hami
from tests.system.test_hami_takeover import BEFORE, OURS_MIB, USED_MIB, container, entry
from tests.system.test_install import build, overlay
from tests.system.test_reinstall import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ROOT = Path(__file__).parents[2]
READER = "system:serviceaccount:kube-system:preflight"
NEW = 6
_DEVICE = {"name": "device", "resourceClaimTemplateName": "device"}
_WEBHOOK: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "hami-webhook"},
    "webhooks": [
        {
            "name": "vgpu.hami.io",
            "clientConfig": {"url": "https://127.0.0.1:1/webhook"},
            "admissionReviewVersions": ["v1beta1", "v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "objectSelector": {"matchLabels": {"played": "hami"}},
        }
    ],
}
_ACCESS: tuple[dict[str, Any], ...] = (
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "preflight", "namespace": "kube-system"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger", "namespace": "kube-system"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "preflight"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "preflight"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "preflight"},
        "subjects": [{"kind": "ServiceAccount", "name": "preflight", "namespace": "kube-system"}],
    },
)


def workload(kind: str, name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a workload without pods."""
    labels = {"app": name}
    body = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}, **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def preflight(layout: Layout, *arguments: str, account: str = "preflight") -> subprocess.CompletedProcess[str]:
    """Run `kubectl gpu preflight` as an account that may read everything, or nothing."""
    identity = kubeconfig.service_account_kubeconfig(layout, namespace="kube-system", name=account)
    return gpu_command.run(identity, "preflight", *arguments)


def report(layout: Layout, *arguments: str) -> dict[str, Any]:
    """Return the JSON report of preflight."""
    done = preflight(layout, "-o", "json", *arguments)
    installed = kubectl.run(layout, "-n", "tranche-system", "get", "configmap", "tranche", "--ignore-not-found")
    has_configuration = installed or "--config" in arguments
    notes = [] if has_configuration else ["ConfigMap tranche-system/tranche does not exist: the defaults are assumed"]
    assert len(done.stderr.splitlines()) == len(notes)
    assert all(note in done.stderr for note in notes)
    content: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(content["summary"]["findings"]["blocks"])
    return content


def objects(content: dict[str, Any], severity: str, words: str) -> list[str]:
    """Return the objects of the findings that contain `words`."""
    return [
        name
        for each in content["findings"]
        if each["severity"] == severity and words in each["what"]
        for name in each["objects"]
    ]


@pytest.fixture
def before(tranche: Layout, plain_namespace: Namespace) -> Iterator[Namespace]:
    """The lab as a HAMi cluster: not installed, with three nodes, pods and webhook of HAMi, and users' workloads."""
    stop(tranche)
    kubectl.run(tranche, "delete", "-k", str(manifests.ROOT / "base"), "--ignore-not-found", "--wait=true")
    gpu = {"containers": [container("main", 3000)]}
    users = [
        workload("Deployment", "fine", gpu, replicas=0),
        workload("Deployment", "binary", {"containers": [_requesting("10Gi")]}, replicas=0),
        workload("Deployment", "claims", {**gpu, "resourceClaims": [_DEVICE]}, replicas=0),
        workload("Deployment", "named", {**gpu, "schedulerName": "hami-scheduler"}, replicas=0),
    ]
    try:
        with served_nodes(tranche):
            client(tranche).apply(_WEBHOOK, *_ACCESS)
            plain_namespace.create(*json.loads(json.dumps(BEFORE)), *users)
            plain_namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod", "--all")
            for name, phase in (("finished", "Succeeded"), ("terminating", "Running")):
                done = json.dumps({"status": {"phase": phase}})
                plain_namespace.kubectl("patch", "pod", name, "--subresource", "status", "--type", "merge", "-p", done)
            yield plain_namespace
            plain_namespace.empty()
    finally:
        delete(tranche, _WEBHOOK, *_ACCESS)
        manifests.install(tranche)
        components.publish(tranche)
        start(tranche)


def _requesting(memory: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    return {"name": "main", "image": "tranche.local/busybox:lab", "resources": {"limits": limits}}


def running(namespace: Namespace) -> dict[str, str]:
    """Return the UIDs of the pods that HAMi placed and that have not ended."""
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in namespace.pods()
        if each["status"]["phase"] == "Running"
    }


def hamis_count(layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Count MiB by card as HAMi's scheduler does, from its two annotations: of all pods, and of this scheduler's pods.

    A pod costs the maximum of its containers' sum and its largest init container (HAMi's rules 1.6).
    """
    used: defaultdict[str, int] = defaultdict(int)
    of_ours: defaultdict[str, int] = defaultdict(int)
    for each in client(layout).list("pods"):
        annotations, spec = each["metadata"].get("annotations", {}), each["spec"]
        if each["status"]["phase"] in ("Succeeded", "Failed") or "hami.io/vgpu-node" not in annotations:
            continue
        assert annotations["hami.io/vgpu-node"] == spec["nodeName"]
        text, inits = annotations[HAMI_ALLOCATED], len(spec.get("initContainers", ()))
        own, first = Counter[str](), Counter[str]()
        for position, devices in enumerate(hami.decode_devices(text)):
            for uuid, memory, _ in devices:
                if position < inits:
                    first[uuid] = max(first[uuid], memory)
                else:
                    own[uuid] += memory
        is_ours = "gpu.scheduling/allocation" in annotations
        if is_ours:
            assert text.count(";") == inits + len(spec["containers"])
        for uuid, memory in (own | first).items():
            used[uuid] += memory
            of_ours[uuid] += memory if is_ours else 0
    return used, of_ours


def place_as_hami(namespace: Namespace, name: str, node: str, memory: int) -> None:
    """Place a pod as HAMi's scheduler does: annotate the pod, lock the node, bind."""
    string = entry(node, 1, memory) + ";"
    annotations = {"hami.io/vgpu-node": node, HAMI_ALLOCATED: string, "hami.io/vgpu-devices-to-allocate": string}
    annotations |= {"hami.io/bind-phase": "allocating", "hami.io/bind-time": str(int(time.time()))}
    namespace.kubectl("annotate", "pod", name, *(f"{key}={value}" for key, value in annotations.items()))
    lock = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},{namespace.name},{name}"
    client(namespace.layout).patch("node", node, {"metadata": {"annotations": {LOCK: str(lock)}}})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/binding"
    namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def is_served(namespace: Namespace, *names: str) -> bool:
    """Return whether HAMi's plugin has served the pods and no node is locked."""
    phases = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("hami.io/bind-phase")
        for each in namespace.pods()
    }
    return all(phases[name] == "success" for name in names) and not locks(namespace.layout)


def check_before(layout: Layout, team: Namespace) -> None:
    """Before the migration, preflight reports what would change, or the rights that the account lacks."""
    content = report(layout, "-n", team.name)
    assert not content["installed"]
    assert {each["name"]: each["mode"] for each in content["nodes"] if each["name"] in NODES} == dict.fromkeys(
        NODES, "HAMi's plugin"
    )
    assert content["summary"]["running"] == {"HAMi's": 6, "HAMi's, misaligned": 2}
    assert content["summary"]["new"] == {"left alone": 1, "mutated": 2, "refused": 1}
    assert objects(content, "blocks", "limits[\"nvidia.com/gpumem\"] holds '10Gi'") == [
        f"Deployment {team.name}/binary"
    ]
    assert objects(content, "blocks", "spec.resourceClaims") == [f"Deployment {team.name}/claims"]
    assert objects(content, "blocks", "spec.schedulerName 'hami-scheduler'") == [f"Deployment {team.name}/named"]
    assert objects(content, "blocks", "HAMi's webhook") == ["MutatingWebhookConfiguration hami-webhook"]
    assert objects(content, "changes", "has not opted in") == [f"namespace {team.name}"]
    everywhere = preflight(layout, "--mode", "extender").stdout
    assert "BLOCKS" in everywhere
    assert f"Deployment {team.name}/binary" in everywhere
    assert "spec.resourceClaims" not in everywhere
    stranger = preflight(layout, account="stranger")
    assert stranger.returncode == 1
    assert all(line.startswith("note: ") and "forbidden" in line for line in stranger.stderr.splitlines())
    assert "forbidden to list nodes of the whole cluster" in stranger.stdout


def migrate(layout: Layout, team: Namespace, added: list[dict[str, Any]], configuration: Path) -> None:
    """Migrate: HAMi's pods are counted and continue to run, and new pods fit beside them."""
    hamis_pods = running(team)
    client(layout).patch("namespace", team.name, {"metadata": {"labels": {"gpu.scheduling/injection": "enabled"}}})
    manifests.install(layout)
    components.publish(layout)
    client(layout).apply(*added)
    start(layout)

    def used() -> dict[str, int]:
        return {uuid: memory for uuid, (memory, _, _) in truth.scheduler_counts(layout).items() if uuid in USED_MIB}

    wait.until(lambda: used() == USED_MIB, what="HAMi's pods counted", timeout_s=PATIENCE_S)
    assert running(team) == hamis_pods
    with pytest.raises(LabError, match="says which GPUs the pod has"):
        team.patch("pod", "right", {"metadata": {"annotations": {HAMI_ALLOCATED: ";"}}})
    names = [f"new-{index}" for index in range(NEW)]
    team.create(*(on_hami(name, gpu=1, gpumem=OURS_MIB, gpucores=1) for name in names))
    wait.until(lambda: is_served(team, *names), what="new pods served", timeout_s=PATIENCE_S)
    truth.recount(layout)
    content = report(layout, "-n", team.name, "--config", str(configuration))
    assert content["installed"]
    assert content["summary"]["running"] == {"HAMi's": 6, "HAMi's, misaligned": 2, "ours": NEW}
    assert content["summary"]["new"] == {"mutated": 3, "refused": 1}
    assert not objects(content, "blocks", "HAMi's webhook") + objects(
        content, "blocks", "component manifests/hami-nodes"
    )
    assert not objects(content, "changes", "has not opted in")


def return_to_hami(layout: Layout, team: Namespace, added: list[dict[str, Any]]) -> None:
    """Return: HAMi counts the new pods by its own annotations and places more; no pod is lost."""
    before = {each["metadata"]["uid"] for each in team.pods()}
    stop(layout)
    kubectl.run(layout, "delete", "-k", str(manifests.ROOT / "base"), "--ignore-not-found", "--wait=true")
    delete(layout, *added)
    used_by_all, used_by_ours = hamis_count(layout)
    assert max(used_by_all.values()) <= MEMORY_MIB
    assert sum(used_by_ours.values()) == NEW * OURS_MIB
    again = pod("hami-again", gpu=1, gpumem=100)
    again["spec"]["schedulerName"] = "hami-scheduler"
    team.create(again)
    place_as_hami(team, "hami-again", NODES[2], 100)
    wait.until(lambda: is_served(team, "hami-again"), what="a pod of HAMi's served", timeout_s=PATIENCE_S)
    assert before < {each["metadata"]["uid"] for each in team.pods()}


def test_hami_cluster_migrates_and_returns(tranche: Layout, before: Namespace, tmp_path: Path) -> None:
    """What preflight predicts comes true, and it only reads; pods of both schedulers run throughout."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text("webhook: {aliases: [hami-scheduler]}\n")
    added = component(tranche, tmp_path)
    check_before(tranche, before)
    migrate(tranche, before, added, configuration)
    return_to_hami(tranche, before, added)
    assert {each["verb"] for each in _requests(tranche, READER)} == {"get", "list"}


def _requests(layout: Layout, user: str) -> list[dict[str, Any]]:
    """Return all requests of a user, which must be reads."""
    with layout.audit_log.open(encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines if user in line and line.endswith("\n")]
    assert not audit.attempts(layout, user=user)
    return [each for each in events if each["user"]["username"] == user]


def test_agent_avoids_hamis_nodes(tranche: Layout, tmp_path: Path) -> None:
    """One label selects nodes for HAMi's plugin and for the agent; the component keeps the agent off HAMi's nodes."""

    def values(built: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
        spec = built["DaemonSet", "tranche-agent"]["spec"]["template"]["spec"]
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("gpu", "In")
        labels: list[str] = expression["values"]
        return labels

    assert values(build(tranche, manifests.ROOT / "install")) == ["on", "tranche"]
    assert values(build(tranche, overlay(tmp_path, "hami-nodes"))) == ["tranche"]
