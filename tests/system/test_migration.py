"""A HAMi cluster moves over to us and back: docs/migration.md, walked on a real API server with HAMi's part played."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from allocation import hami
from allocation.names import HAMI_ALLOCATED
from lab import kubeconfig, kubectl, manifests, wait
from lab.errors import LabError
from tests.system import audit, truth
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.hami_nodes import LOCK, NODES, component, delete, locks, served_nodes
from tests.system.hami_plugin import MEMORY_MIB
from tests.system.test_hami_nodes import on_hami
from tests.system.test_hami_takeover import BEFORE, OURS_MIB, USED_MIB, container, entry
from tests.system.test_install import build, overlay
from tests.system.test_reinstall import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(500)]
ROOT = Path(__file__).parents[2]
READER = "system:serviceaccount:kube-system:preflight"
NEW = 6
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
    """Answer a controller that makes no pod yet."""
    labels = {"app": name}
    body = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}, **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def preflight(layout: Layout, *arguments: str, account: str = "preflight") -> subprocess.CompletedProcess[str]:
    """Run `kubectl gpu preflight` as an account that may read, or may nothing."""
    identity = kubeconfig.service_account_kubeconfig(layout, namespace="kube-system", name=account)
    command = [sys.executable, "-m", "cli", "preflight", "--kubeconfig", str(identity), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def report(layout: Layout, *arguments: str) -> dict[str, Any]:
    """Answer what it prints for programs."""
    done = preflight(layout, "-o", "json", *arguments)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(found["summary"]["findings"]["blocks"])
    return found


def said(found: dict[str, Any], severity: str, word: str) -> list[str]:
    """Answer the objects of which a finding says something."""
    return [
        name
        for each in found["findings"]
        if each["severity"] == severity and word in each["what"]
        for name in each["objects"]
    ]


@pytest.fixture
def before(tranche: Layout, plain_namespace: Namespace) -> Iterator[Namespace]:
    """The lab as a HAMi cluster: nothing of ours, three nodes of HAMi's, its pods, its webhook, what users wrote."""
    stop(tranche)
    kubectl.run(tranche, "delete", "-k", str(manifests.ROOT / "base"), "--ignore-not-found", "--wait=true")
    gpu = {"containers": [container("main", 3000)]}
    users = [
        workload("Deployment", "fine", gpu, replicas=0),
        workload("Deployment", "binary", {"containers": [_asking("10Gi")]}, replicas=0),
        workload("Deployment", "claims", {**gpu, "volumes": [_claim()]}, replicas=0),
        workload("Deployment", "named", {**gpu, "schedulerName": "hami-scheduler"}, replicas=0),
    ]
    try:
        with served_nodes(tranche):
            kubectl.apply(tranche, _WEBHOOK, *_ACCESS)
            plain_namespace.create(*json.loads(json.dumps(BEFORE)), *users)
            plain_namespace.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod", "--all")
            for name, phase in (("finished", "Succeeded"), ("terminating", "Running")):
                done = json.dumps({"status": {"phase": phase}})
                plain_namespace.kubectl("patch", "pod", name, "--subresource", "status", "--type", "merge", "-p", done)
            yield plain_namespace
            plain_namespace.empty()
    finally:
        delete(tranche, _WEBHOOK, *_ACCESS)
        manifests.install(tranche)
        start(tranche)


def _asking(memory: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    return {"name": "main", "image": "tranche.local/busybox:lab", "resources": {"limits": limits}}


def _claim() -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def running(namespace: Namespace) -> dict[str, str]:
    """Answer the UIDs of the pods that HAMi placed and that have not ended."""
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in namespace.pods()
        if each["status"]["phase"] == "Running"
    }


def hamis_count(layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Count MiB by card as HAMi's scheduler does, from its own two annotations, place by place; and ours alone.

    A pod costs the larger of its containers' sum and its largest init container (hami.md 1.6).
    """
    used: defaultdict[str, int] = defaultdict(int)
    of_ours: defaultdict[str, int] = defaultdict(int)
    for each in kubectl.get(layout, "pods", "-A")["items"]:
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
    """Do what HAMi's scheduler does: annotate the pod, lock the node, bind."""
    string = entry(node, 1, memory) + ";"
    given = {"hami.io/vgpu-node": node, HAMI_ALLOCATED: string, "hami.io/vgpu-devices-to-allocate": string}
    given |= {"hami.io/bind-phase": "allocating", "hami.io/bind-time": str(int(time.time()))}
    namespace.kubectl("annotate", "pod", name, *(f"{key}={value}" for key, value in given.items()))
    lock = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},{namespace.name},{name}"
    kubectl.run(namespace.layout, "annotate", "node", node, f"{LOCK}={lock}")
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/binding"
    namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def is_served(namespace: Namespace, *names: str) -> bool:
    """Whether HAMi's plugin has served the pods, and no node is locked."""
    phases = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("hami.io/bind-phase")
        for each in namespace.pods()
    }
    return all(phases[name] == "success" for name in names) and not locks(namespace.layout)


def look(layout: Layout, team: Namespace) -> None:
    """Before: what would change is told, to who may read; who may not is told what is missing."""
    found = report(layout, "-n", team.name)
    assert not found["installed"]
    assert {each["name"]: each["mode"] for each in found["nodes"] if each["name"] in NODES} == dict.fromkeys(
        NODES, "HAMi's plugin"
    )
    assert found["summary"]["running"] == {"HAMi's": 6, "HAMi's, misaligned": 2}
    assert found["summary"]["new"] == {"left alone": 1, "mutated": 2, "refused": 1}
    assert said(found, "blocks", "limits[\"nvidia.com/gpumem\"] holds '10Gi'") == [f"Deployment {team.name}/binary"]
    assert said(found, "blocks", "spec.volumes[data]") == [f"Deployment {team.name}/claims"]
    assert said(found, "blocks", "spec.schedulerName 'hami-scheduler'") == [f"Deployment {team.name}/named"]
    assert said(found, "blocks", "HAMi's webhook") == ["MutatingWebhookConfiguration hami-webhook"]
    assert said(found, "changes", "has not opted in") == [f"namespace {team.name}"]
    everywhere = preflight(layout, "--mode", "extender").stdout
    assert "BLOCKS" in everywhere
    assert f"Deployment {team.name}/binary" in everywhere
    assert "spec.volumes[data]" not in everywhere
    stranger = preflight(layout, account="stranger")
    assert (stranger.returncode, stranger.stderr) == (1, "")
    assert "forbidden to list nodes of the whole cluster" in stranger.stdout


def go_over(layout: Layout, team: Namespace, added: list[dict[str, Any]], configuration: Path) -> None:
    """Over: HAMi's pods are counted and run on, new ones are ours and fit beside them."""
    theirs = running(team)
    kubectl.run(layout, "label", "namespace", team.name, "gpu.scheduling/injection=enabled")
    manifests.install(layout)
    kubectl.apply(layout, *added)
    start(layout)

    def used() -> dict[str, int]:
        return {uuid: memory for uuid, (memory, _, _) in truth.scheduler_counts(layout).items() if uuid in USED_MIB}

    wait.until(lambda: used() == USED_MIB, what="HAMi's pods counted", timeout_s=PATIENCE_S)
    assert running(team) == theirs
    with pytest.raises(LabError, match="says which GPUs the pod has"):
        team.kubectl("annotate", "pod", "right", f"{HAMI_ALLOCATED}=;", "--overwrite")
    names = [f"new-{index}" for index in range(NEW)]
    team.create(*(on_hami(name, gpu=1, gpumem=OURS_MIB, gpucores=1) for name in names))
    wait.until(lambda: is_served(team, *names), what="new pods served", timeout_s=PATIENCE_S)
    truth.recount(layout)
    found = report(layout, "-n", team.name, "--config", str(configuration))
    assert found["installed"]
    assert found["summary"]["running"] == {"HAMi's": 6, "HAMi's, misaligned": 2, "ours": NEW}
    assert found["summary"]["new"] == {"mutated": 3, "refused": 1}
    assert not said(found, "blocks", "HAMi's webhook") + said(found, "blocks", "component manifests/hami-nodes")
    assert not said(found, "changes", "has not opted in")


def go_back(layout: Layout, team: Namespace, added: list[dict[str, Any]]) -> None:
    """Back: HAMi counts our pods by its own annotations and places beside them; nobody's pod is gone."""
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


def test_a_hami_cluster_moves_over_and_back(tranche: Layout, before: Namespace, tmp_path: Path) -> None:
    """What preflight says comes true, and it only reads; pods run on, whoever placed them, all the way."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text("webhook: {aliases: [hami-scheduler]}\n")
    added = component(tranche, tmp_path)
    look(tranche, before)
    go_over(tranche, before, added, configuration)
    go_back(tranche, before, added)
    assert {each["verb"] for each in _asked(tranche, READER)} == {"get", "list"}


def _asked(layout: Layout, user: str) -> list[dict[str, Any]]:
    """Answer all requests of a user."""
    with layout.audit_log.open(encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines if user in line and line.endswith("\n")]
    assert not audit.attempts(layout, user=user)
    return [each for each in events if each["user"]["username"] == user]


def test_where_hami_has_nodes_our_agent_waits_for_its_label(tranche: Layout, tmp_path: Path) -> None:
    """HAMi's plugin and our agent are chosen by one label; the component for HAMi's nodes keeps ours off them."""

    def values(found: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
        spec = found["DaemonSet", "tranche-agent"]["spec"]["template"]["spec"]
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("gpu", "In")
        chosen: list[str] = expression["values"]
        return chosen

    assert values(build(tranche, manifests.ROOT / "install")) == ["on", "tranche"]
    assert values(build(tranche, overlay(tmp_path, "hami-nodes"))) == ["tranche"]
