from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from lab import cluster, health, kubeconfig, kubectl, pki, processes, wait
from lab import control_plane as module
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
    """Create an object with a generated name and answer `kind/name`."""
    return kubectl.run(layout, "create", "-o", "name", "-f", "-", stdin=json.dumps(manifest)).strip()


@pytest.fixture
def server(own_layout: Layout) -> Layout:
    """Etcd and kube-apiserver alone, to be killed."""
    module.up(own_layout, controller_manager=False, kube_scheduler=False)
    return own_layout


def test_pods_can_be_created_as_soon_as_up_returns(control_plane: Layout) -> None:
    """Namespace `default` has its ServiceAccount, so admission lets a pod in."""
    pod = create(control_plane, POD)
    kubectl.run(control_plane, "delete", pod, "--now")


def test_up_twice_starts_nothing_twice(control_plane: Layout) -> None:
    """What runs is left alone."""
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
def test_each_component_is_itself(control_plane: Layout, name: str, user: str) -> None:
    """No component runs as administrator."""
    own = control_plane.component_kubeconfig(name)
    who = json.loads(kubectl.run(control_plane, "auth", "whoami", "-o", "json", kubeconfig=own))
    assert who["status"]["userInfo"]["username"] == user


def test_service_account_kubeconfig_is_that_account(control_plane: Layout) -> None:
    """A process started with it has the account's permissions, and the file is its owner's alone."""
    path = kubeconfig.service_account_kubeconfig(control_plane, namespace="default", name="default")
    who = json.loads(kubectl.run(control_plane, "auth", "whoami", "-o", "json", kubeconfig=path))
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LabError, match="cannot list resource"):
        kubectl.run(control_plane, "get", "nodes", kubeconfig=path)


def test_secrets_are_their_owners_alone(control_plane: Layout) -> None:
    """Keys and kubeconfigs can be read by nobody else on the machine."""
    files = [control_plane.kubeconfig, control_plane.audit_log, *control_plane.pki.iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_etcd_answers_no_stranger(control_plane: Layout) -> None:
    """Only the API server's certificate opens etcd: the cluster's own authority does not."""
    clients = ("kube-apiserver-etcd-client", "admin")
    answers = [
        health.is_ready(control_plane, Port.ETCD, "/readyz", authority=pki.ETCD_CA, client=client) for client in clients
    ]
    assert answers == [True, False]


def test_audit_log_holds_each_request_once(control_plane: Layout) -> None:
    """Tests can count who asked the API server for what."""
    pod = create(control_plane, POD).removeprefix("pod/")
    kubectl.run(control_plane, "delete", "pod", pod, "--now")
    events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    deletions = [
        event
        for event in events
        if event["verb"] == "delete"
        and event["objectRef"].get("name") == pod
        and event["user"]["username"] == "kubernetes-admin"
    ]
    assert [event["stage"] for event in deletions] == ["ResponseComplete"]


def test_server_alone_takes_pods(server: Layout) -> None:
    """Without a controller manager the lab itself makes the ServiceAccount that a pod needs."""
    create(server, POD)


def test_restarted_server_keeps_its_state(server: Layout) -> None:
    """A restart of the API server alone is another process on the same port with the same objects."""
    before, pod = Daemon(server, "kube-apiserver").pid, create(server, POD)
    module.restart_apiserver(server)
    assert Daemon(server, "kube-apiserver").pid != before
    assert kubectl.run(server, "get", pod, "-o", "name").strip() == pod


def test_up_repairs_a_crash_of_everything(server: Layout) -> None:
    """After SIGKILL of every process, `up` starts what is missing with the state that was there."""
    pod = create(server, POD)
    for pid in processes.strays(server):
        os.kill(pid, signal.SIGKILL)
    wait.until(lambda: not processes.strays(server), what="end of every process", timeout_s=10)
    module.up(server, controller_manager=False, kube_scheduler=False)
    assert kubectl.run(server, "get", pod, "-o", "name").strip() == pod


def test_down_leaves_logs_and_nothing_else(server: Layout) -> None:
    """No process, no port and no file but the logs, also when repeated; and the lab starts anew after it."""
    create(server, POD)
    cluster.down(server)
    cluster.down(server)
    assert processes.strays(server) == []
    assert [entry.name for entry in server.root.iterdir()] == ["logs"]
    module.up(server, controller_manager=False, kube_scheduler=False)
    assert kubectl.get(server, "pods")["items"] == []
