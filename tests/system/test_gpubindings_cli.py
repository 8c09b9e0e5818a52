"""`kubectl gpu bindings` on a real control plane: without the definition, without rights, and with pods that run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, APP_NAME, APP_OWNER, SHARE_MODE_PREFIX
from allocation.wire import record
from lab import kubectl
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "manifests" / "gpubindings"
DEFINITION = "gpubindings.gpu.bytetrade.io"
ROLE = "tranche-viewer"
NODE = "gpu-sim-0"


def gpu(kubeconfig: Path, *arguments: str, module: str = "cli") -> subprocess.CompletedProcess[str]:
    """Run `kubectl gpu` with a kubeconfig."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={"KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def cluster_role_binding(namespace: Namespace) -> dict[str, Any]:
    """Return what gives the viewer role to account `viewer` of the namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{ROLE}-{namespace.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace.name}],
    }


@pytest.fixture
def viewer(tranche: Layout, namespace: Namespace) -> Iterator[Path]:
    """The kubeconfig of an account without any role yet."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
    namespace.create(account)
    yield service_account_kubeconfig(tranche, namespace=namespace.name, name="viewer")
    client(tranche).delete("clusterrolebinding", f"{ROLE}-{namespace.name}", missing_ok=True)


@pytest.fixture
def definition(tranche: Layout) -> Iterator[None]:
    """The definition of GPUBindings."""
    kubectl.run(tranche, "apply", "-f", str(COMPONENT / "crd.yaml"))
    kubectl.run(tranche, "wait", "--for=condition=Established", f"crd/{DEFINITION}")
    yield
    client(tranche).delete("crd", DEFINITION)


@pytest.fixture
def required(tmp_path: Path) -> Path:
    """A configuration file that applies bindings to every pod."""
    path = tmp_path / "config.yaml"
    path.write_text("allocation: {bindings: {mode: required}}\n")
    return path


def binding(name: str, *, uuid: str, **spec: Any) -> dict[str, Any]:
    """Return a binding of app chat of alice."""
    head = {"apiVersion": "gpu.bytetrade.io/v1alpha1", "kind": "GPUBinding", "metadata": {"name": name}}
    return {**head, "spec": {"appName": "chat", "owner": "alice", "uuid": uuid, "podSelector": {}, **spec}}


def test_without_the_definition_the_remedy_is_named(tranche: Layout) -> None:
    """An administrator of a cluster without the component reads which one to install."""
    client(tranche).delete("crd", DEFINITION, missing_ok=True)
    done = gpu(tranche.kubeconfig, "bindings")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"resource {DEFINITION} is not defined in this cluster" in done.stderr
    assert "manifests/gpubindings" in done.stderr


@pytest.mark.usefixtures("definition")
def test_without_the_right_the_role_is_named(viewer: Path, tranche: Layout, namespace: Namespace) -> None:
    """The role is the viewers', and it suffices."""
    refused = gpu(viewer, "bindings")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "of the whole cluster: forbidden" in refused.stderr
    assert f"ClusterRole {ROLE} (manifests/base/rbac/viewer.yaml)" in refused.stderr
    client(tranche).apply(cluster_role_binding(namespace))
    allowed = gpu(viewer, "bindings")
    assert (allowed.returncode, allowed.stdout.split()[:2]) == (0, ["CARD", "NODE"])
    assert "allocation.bindings.mode is off" in allowed.stderr


@pytest.mark.usefixtures("definition")
def test_bindings_show_the_pods_that_run(tranche: Layout, namespace: Namespace, required: Path) -> None:
    """Cards, share modes and pods come from the cluster; problems are named below the table."""
    labels = {APP_NAME: "chat", APP_OWNER: "alice"}
    namespace.create(pod("web", node=NODE, labels=labels, gpu=1, gpumem=1000))
    (placed,) = namespace.placed(1)
    (share,) = record.decode(placed["metadata"]["annotations"][ALLOCATION]).containers["main"]
    mode = f"{SHARE_MODE_PREFIX}{share.uuid}"
    client(tranche).patch("node", NODE, {"metadata": {"annotations": {mode: "1"}}})
    try:
        client(tranche).apply(
            binding("alices", uuid=share.uuid, namespace=namespace.name, memory="24k"),
            binding("gone", uuid="GPU-gone", owner="bob", namespace="elsewhere", memory=1000),
            {**binding("draws", uuid=share.uuid), "spec": {"appName": "draw", "uuid": share.uuid}},
        )
        everything = ("bindings", "--config", str(required))
        done = gpu(tranche.kubeconfig, *everything, "-o", "json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        rows = {each["name"]: each for each in report["bindings"]}
        assert set(rows) == {"alices", "gone", "draws"}
        assert rows["alices"]["created"]
        expected = {"node": NODE, "memoryMiB": 24000, "shareMode": "memory-slicing", "pods": [f"{namespace.name}/web"]}
        assert {key: rows["alices"][key] for key in expected} == expected
        assert (rows["draws"]["pods"], rows["gone"]["node"]) == ([], "")
        assert [(each["type"], each["bindings"]) for each in report["problems"]] == [
            ("UnknownCard", ["gone"]),
            ("NoSelector", ["draws"]),
            ("NoNamespace", ["draws"]),
        ]

        wide = gpu(tranche.kubeconfig, *everything, "chat", "-o", "wide")
        lines = [line.split() for line in wide.stdout.splitlines()]
        assert lines[0] == ["CARD", "NODE", "APP", "OWNER", "NAMESPACE", "MEMORY", "MODE", "PODS", "BINDING", "AGE"]
        assert {line[-2] for line in lines[1:]} == {"alices", "gone"}
        assert "GPUBinding gone: no node reports card GPU-gone" in wide.stderr
        assert "draws" not in wide.stderr

        own = gpu(tranche.kubeconfig, *everything, "--owner", "alice", "-n", namespace.name, "-o", "name")
        assert own.stdout.splitlines() == [f"gpubinding.gpu.bytetrade.io/{name}" for name in ("alices", "draws")]
        unowned = gpu(tranche.kubeconfig, *everything, "paint")
        assert (unowned.returncode, unowned.stdout) == (1, "")
        assert "no GPUBinding counts for such pods of app paint" in unowned.stderr
        typed = gpu(tranche.kubeconfig, "bindings", "", module="cli.completion.complete")
        assert typed.stdout.splitlines() == ["chat", "draw", ":4"]
        typed = gpu(tranche.kubeconfig, "bindings", "--owner", "b", module="cli.completion.complete")
        assert typed.stdout.splitlines() == ["bob", ":4"]
    finally:
        client(tranche).patch("node", NODE, {"metadata": {"annotations": {mode: None}}})


@pytest.mark.usefixtures("definition")
def test_preflight_finds_bindings_that_are_not_applied(tranche: Layout, required: Path) -> None:
    """The configuration of the lab does not apply bindings; one that does has no such finding."""
    client(tranche).apply(binding("alices", uuid="GPU-1", namespace="ns-a"))

    def found(*arguments: str) -> list[dict[str, Any]]:
        done = gpu(tranche.kubeconfig, "preflight", "-o", "json", *arguments)
        findings = json.loads(done.stdout)["findings"]
        return [each for each in findings if "GPUBinding alices" in each["objects"]]

    assert [each["severity"] for each in found()] == ["blocks"]
    assert found("--config", str(required)) == []
