"""Simulating workloads: predictions come true on a real control plane with Kubernetes' controllers."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lab import components, kubectl, wait
from lab.client import client
from lab.errors import LabError
from lab.processes import Daemon
from tests.support import gpu_command
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    """Return a workload whose pods request three quarters of a card."""
    made = pod("x", gpu=1, gpumem=60000)["spec"]
    made.pop("nodeSelector")
    labels = {"app": "trains"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "trains"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": made},
            **spec,
        },
    }


def simulate(
    layout: Layout, namespace: Namespace, made: dict[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    """Simulate a workload as administrator."""
    arguments = ("simulate", "-f", "-", *options, "-n", namespace.name)
    return gpu_command.run(layout.kubeconfig, *arguments, stdin=json.dumps(made))


def explain(layout: Layout, namespace: Namespace, name: str) -> str:
    """Return what `explain` prints about a pod or a workload, for an administrator."""
    done = gpu_command.run(layout.kubeconfig, "explain", name, "-n", namespace.name)
    done.check_returncode()
    return done.stdout


def test_simulate_predicts_how_many_replicas_are_placed(tranche: Layout, namespace: Namespace) -> None:
    """It predicts their nodes, too. Without --all it says that it evaluated one replica; it reserves nothing."""
    made = workload("Deployment", replicas=40)
    one = simulate(tranche, namespace, made)
    assert (one.returncode, one.stderr) == (0, "")
    assert one.stdout.splitlines()[-1] == "Deployment trains: 1 of 40 replicas evaluated; --all evaluates all of them"
    done = simulate(tranche, namespace, made, "--all", "-o", "json")
    assert done.returncode == 1
    (item,) = json.loads(done.stdout)["items"]
    replicas = item["replicas"]
    assert (replicas["total"], replicas["evaluated"]) == (40, 40)
    assert 0 < replicas["fit"] < 40
    assert item["simulation"]["error"] is None
    assert replicas["unfit"]["error"]["type"] == "FitError"
    text = simulate(tranche, namespace, made, "--all").stdout
    assert f"Deployment trains: {replicas['fit']} of 40 replicas fit: " in text
    assert "the first replica that does not fit:\n" in text
    namespace.create(made)
    placed = namespace.placed(replicas["fit"])
    assert Counter(each["spec"]["nodeName"] for each in placed) == replicas["nodes"]
    waiting = next(each for each in namespace.pods() if not each["spec"].get("nodeName"))
    namespace.unplaced(waiting["metadata"]["name"])
    assert len(namespace.placed(replicas["fit"])) == replicas["fit"]


def test_a_pod_has_the_priority_of_a_class_that_exists(tranche: Layout, namespace: Namespace) -> None:
    """As at its creation, which a class that does not exist prevents."""
    important = pod("important", gpu=1, gpumem=100)
    important["spec"]["priorityClassName"] = "system-node-critical"
    assert simulate(tranche, namespace, important).returncode == 0
    important["spec"]["priorityClassName"] = "missing"
    done = simulate(tranche, namespace, important)
    assert done.returncode != 0
    assert "no PriorityClass with name missing was found" in done.stdout + done.stderr


def test_a_field_that_loop_mode_does_not_evaluate_is_named_alike(tranche: Layout, namespace: Namespace) -> None:
    """What simulate predicts is the message of the event, and explain repeats it."""
    made = workload("Deployment")
    made["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    done = simulate(tranche, namespace, made, "-o", "json")
    assert done.returncode == 1
    (item,) = json.loads(done.stdout)["items"]
    error = item["simulation"]["error"]
    assert error["type"] == "Held"
    assert "spec.resourceClaims is not evaluated in loop mode" in error["message"]
    namespace.create(made)
    wait.until(namespace.pods, what="its pod", timeout_s=PATIENCE_S)
    assert namespace.unplaced(namespace.pods()[0]["metadata"]["name"]) == error["message"]
    assert error["message"] in explain(tranche, namespace, "deploy/trains")


def test_claims_of_a_stateful_set_are_simulated_before_they_exist(tranche: Layout, namespace: Namespace) -> None:
    """Each pod gets the node of a volume, and one that has none waits, with the message that simulate predicts."""
    made = workload("StatefulSet", serviceName="svc", replicas=3, podManagementPolicy="Parallel")
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": namespace.name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    made["spec"]["volumeClaimTemplates"] = [claim]
    client(tranche).apply(*local_volumes(namespace.name, "gpu-sim-0", "gpu-sim-2"))
    try:
        done = simulate(tranche, namespace, made, "--all", "-o", "json")
        assert done.returncode == 1
        (item,) = json.loads(done.stdout)["items"]
        replicas = item["replicas"]
        assert (replicas["fit"], replicas["nodes"]) == (2, {"gpu-sim-0": 1, "gpu-sim-2": 1})
        (first,) = item["simulation"]["explanation"]["claims"]
        assert (first["name"], first["state"], first["exists"]) == ("data-trains-0", "unbound", False)
        namespace.create(made)
        placed = namespace.placed(2)
        assert Counter(each["spec"]["nodeName"] for each in placed) == replicas["nodes"]
        waiting = next(each["metadata"]["name"] for each in namespace.pods() if not each["spec"].get("nodeName"))
        assert namespace.unplaced(waiting) == replicas["unfit"]["error"]["message"]
        shown = explain(tranche, namespace, waiting)
        assert f"data-{waiting}" in shown
        assert "is bound with its pod" in shown
    finally:
        namespace.delete("statefulset", "trains")
        namespace.api.delete_all("pvc", namespace=namespace.name, wait=False)
        kubectl.run(tranche, "delete", "pv,storageclass", "-l", f"test={namespace.name}", "--wait=false")


def local_volumes(name: str, *nodes: str) -> list[dict[str, Any]]:
    """Return a class `name` that waits for its pods, and a volume of it on each of `nodes`."""
    labels = {"test": name}
    made: list[dict[str, Any]] = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "labels": labels},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ]
    for node in nodes:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": name,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        metadata = {"name": f"{name}-{node}", "labels": labels}
        made.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    return made


def test_daemon_set_is_simulated_on_its_own_nodes(tranche: Layout, namespace: Namespace) -> None:
    """One pod is evaluated for each node that its selector matches, and on that node only."""
    made = workload("DaemonSet")
    nodes = ["gpu-sim-0", "gpu-sim-2"]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    done = simulate(tranche, namespace, made, "--all", "-o", "json")
    (item,) = json.loads(done.stdout)["items"]
    assert (done.returncode, item["replicas"]["nodes"]) == (0, dict.fromkeys(nodes, 1))
    namespace.create(made)
    try:
        assert {each["spec"]["nodeName"] for each in namespace.placed(2)} == set(nodes)
    finally:
        namespace.delete("daemonset", "trains")


def test_unavailable_webhook_is_reported_first(tranche: Layout, namespace: Namespace) -> None:
    """The webhook runs outside the cluster here and is called by URL; the API server rejects the pod as predicted."""
    made = workload("Deployment")
    Daemon(tranche, "webhook").stop()
    try:
        done = simulate(tranche, namespace, made)
        lines = done.stdout.splitlines()
        assert (done.returncode, lines[0]) == (1, "NOT WORKING")
        assert lines[1].startswith("  webhook: webhook https://127.0.0.1:")
        assert "does not respond: Connection refused" in lines[1]
        assert lines[4].endswith(", but only once the webhook responds")
        with pytest.raises(LabError, match="did not prepare this pod"):
            namespace.create(pod("refused", gpu=1))
    finally:
        components.start(tranche, components.component(tranche, "webhook"))
    wait.until(
        lambda: not simulate(tranche, namespace, made).stdout.startswith("NOT WORKING"),
        what="the webhook",
        timeout_s=PATIENCE_S,
    )
