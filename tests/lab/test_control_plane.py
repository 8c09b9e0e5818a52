from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from lab import cluster, health, kubeconfig, kubectl, pki, processes, wait
from lab import control_plane as module
from lab.client import client
from lab.errors import LabError
from lab.layout import Layout, Port
from lab.processes import Daemon

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


@pytest.fixture
def server(own_layout: Layout) -> Layout:
    """Start only etcd and kube-apiserver, for tests that kill them."""
    module.up(own_layout, controller_manager=False, kube_scheduler=False)
    return own_layout


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


def test_pods_can_be_created_without_a_controller_manager(server: Layout) -> None:
    """The lab itself creates the ServiceAccount that a pod needs."""
    create(server, POD)


def test_a_restarted_api_server_keeps_its_state(server: Layout) -> None:
    """After a restart, another process serves the same objects on the same port."""
    before, pod = Daemon(server, "kube-apiserver").pid, create(server, POD)
    module.restart_apiserver(server)
    assert Daemon(server, "kube-apiserver").pid != before
    assert kubectl.run(server, "get", pod, "-o", "name").strip() == pod


def test_up_recovers_from_a_crash_of_every_process(server: Layout) -> None:
    """After SIGKILL of every process, `up` starts the missing ones, and the objects are still there."""
    pod = create(server, POD)
    for pid in processes.strays(server):
        os.kill(pid, signal.SIGKILL)
    wait.until(lambda: not processes.strays(server), what="end of every process", timeout_s=10)
    module.up(server, controller_manager=False, kube_scheduler=False)
    assert kubectl.run(server, "get", pod, "-o", "name").strip() == pod


def test_down_leaves_only_logs(server: Layout) -> None:
    """No process and no other file remains, `down` is idempotent, and the lab can start again."""
    create(server, POD)
    cluster.down(server)
    cluster.down(server)
    assert processes.strays(server) == []
    assert [entry.name for entry in server.root.iterdir()] == ["logs"]
    module.up(server, controller_manager=False, kube_scheduler=False)
    assert client(server).list("pods") == []
