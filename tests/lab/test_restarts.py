"""A control plane whose processes are stopped, killed or removed comes back."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from lab import cluster, control_plane, processes, wait
from lab.client import client
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def create_pod(layout: Layout, name: str) -> Any:
    """Create a pod, and return its UID."""
    metadata, spec = {"name": name}, {"containers": [{"name": "main", "image": "tranche.local/busybox:lab"}]}
    (pod,) = client(layout).create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pod["metadata"]["uid"]


def uid(layout: Layout, name: str) -> Any:
    """Return the UID of a pod."""
    return client(layout).get("pod", name)["metadata"]["uid"]


def test_a_restarted_api_server_keeps_its_state(empty_cluster: Layout) -> None:
    """After a restart, another process serves the same objects on the same port."""
    before, pod = Daemon(empty_cluster, "kube-apiserver").pid, create_pod(empty_cluster, "restart")
    control_plane.restart_apiserver(empty_cluster)
    assert Daemon(empty_cluster, "kube-apiserver").pid != before
    assert uid(empty_cluster, "restart") == pod


def test_up_recovers_from_a_crash_of_every_process(empty_cluster: Layout) -> None:
    """After SIGKILL of every process, `up` starts the missing ones, and the objects are still there."""
    pod = create_pod(empty_cluster, "crash")
    killed = processes.strays(empty_cluster)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # A process that is about to end has no environment any more, which the mark is in, and still has its port.
    wait.until(lambda: not any(map(processes.Status.of, killed)), what="end of every process", timeout_s=PATIENCE_S)
    control_plane.up(empty_cluster, kube_scheduler=False)
    assert uid(empty_cluster, "crash") == pod


def test_down_leaves_only_logs(empty_cluster: Layout) -> None:
    """No process and no other file remains, `down` is idempotent, and the lab can start again.

    Without a controller manager, the lab itself creates the ServiceAccount that a pod needs.
    """
    create_pod(empty_cluster, "down")
    cluster.down(empty_cluster)
    cluster.down(empty_cluster)
    assert processes.strays(empty_cluster) == []
    assert [entry.name for entry in empty_cluster.root.iterdir()] == ["logs"]
    control_plane.up(empty_cluster, controller_manager=False, kube_scheduler=False)
    assert client(empty_cluster).list("pods") == []
    create_pod(empty_cluster, "up")
