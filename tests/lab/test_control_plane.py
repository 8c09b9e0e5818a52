from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lab import control_plane as module
from lab import health, kubeconfig, kubectl, pki, processes
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout, Port

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.apiserver

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "lab-"},
    "spec": {"containers": [{"name": "main", "image": "tranche.local/busybox:lab"}]},
}


def create(layout: Layout, manifest: Mapping[str, object]) -> str:
    """Create an object with a generated name, and return `kind/name`."""
    return kubectl.run(layout, "create", "-o", "name", "-f", "-", stdin=json.dumps(manifest)).strip()


def test_pods_can_be_created_as_soon_as_up_returns(control_plane: Layout) -> None:
    """Namespace `default` has its ServiceAccount, so admission accepts a pod."""
    pod = create(control_plane, POD)
    kubectl.run(control_plane, "delete", pod, "--now")


def test_up_is_idempotent(control_plane: Layout) -> None:
    """A second call does not restart running processes."""
    before = [daemon.pid for daemon in processes.recorded(control_plane)]
    assert len(before) >= 4
    module.up(control_plane)
    assert [daemon.pid for daemon in processes.recorded(control_plane)] == before


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("kube-controller-manager", "system:kube-controller-manager"),
        ("kube-scheduler", "system:kube-scheduler"),
    ],
)
def test_each_component_has_its_own_identity(control_plane: Layout, name: str, user: str) -> None:
    """Components do not run as administrator."""
    own = control_plane.component_kubeconfig(name)
    who = json.loads(kubectl.run(control_plane, "auth", "whoami", "-o", "json", kubeconfig=own))
    assert who["status"]["userInfo"]["username"] == user


def test_a_service_account_kubeconfig_has_that_identity(control_plane: Layout) -> None:
    """It has exactly the account's permissions, and only its owner can read the file."""
    path = kubeconfig.service_account_kubeconfig(control_plane, namespace="default", name="default")
    who = json.loads(kubectl.run(control_plane, "auth", "whoami", "-o", "json", kubeconfig=path))
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LabError, match="cannot list resource"):
        kubectl.run(control_plane, "get", "nodes", kubeconfig=path)


def test_only_the_owner_can_read_secrets(control_plane: Layout) -> None:
    """Keys, kubeconfigs and the audit log have mode 0600."""
    files = [control_plane.kubeconfig, control_plane.audit_log, *control_plane.pki.iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_etcd_accepts_only_the_api_server(control_plane: Layout) -> None:
    """A client certificate of the cluster's authority is not accepted."""
    clients = ("kube-apiserver-etcd-client", "admin")
    results = [
        health.is_ready(control_plane, Port.ETCD, "/readyz", authority=pki.ETCD_CA, client=client) for client in clients
    ]
    assert results == [True, False]


def test_the_audit_log_has_each_request_once(control_plane: Layout) -> None:
    """Tests can count the requests of a user."""
    pod = create(control_plane, POD).removeprefix("pod/")
    client(control_plane).delete("pod", pod)
    events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    deletions = [
        event
        for event in events
        if event["verb"] == "delete"
        and event["objectRef"].get("name") == pod
        and event["user"]["username"] == "kubernetes-admin"
    ]
    assert [event["stage"] for event in deletions] == ["ResponseComplete"]
