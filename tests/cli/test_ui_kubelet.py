"""`kubectl gpu ui` on a real node: API server, kubelet and containerd forward the port."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import SYSTEM_NAMESPACE
from cli.ui import LEASE, PATH, PORT
from lab import images, kubectl
from lab.client import client
from tests.cli.support import ui_command
from tests.support.patience import KUBECTL_PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]

NAME = "page-leader"
CONTENT = "the page of the leader"


def pod(layout: Layout) -> dict[str, Any]:
    """Return a pod on the real node that serves a page on its loopback interface only."""
    serve = f"mkdir -p /www{PATH} && echo {CONTENT} >/www{PATH}index.html && exec httpd -f -p 127.0.0.1:{PORT} -h /www"
    container = {
        "name": "main",
        "image": images.PLAIN.name,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", serve],
        "readinessProbe": {"exec": {"command": ["wget", "-q", "-O-", f"http://127.0.0.1:{PORT}{PATH}"]}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "www", "mountPath": "/www"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "nodeName": layout.node_name,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "fsGroup": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "www", "emptyDir": {}}],
        },
    }


def test_page_on_the_loopback_of_the_leaders_pod_is_reached(real_node: Layout, tmp_path: Path) -> None:
    """Several times over, and Ctrl-C ends the command."""
    api = client(real_node)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": SYSTEM_NAMESPACE},
        "spec": {"holderIdentity": f"{NAME}-0badcafe"},
    }
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}, lease, pod(real_node))
    try:
        kubectl.run(real_node, "-n", SYSTEM_NAMESPACE, "wait", f"pod/{NAME}", "--for=condition=Ready", KUBECTL_PATIENCE)
        asyncio.run(_load(str(real_node.kubeconfig), tmp_path))
    finally:
        api.delete("pod", NAME, namespace=SYSTEM_NAMESPACE)
        api.delete("lease", LEASE, namespace=SYSTEM_NAMESPACE)


async def _load(kubeconfig: str, folder: Path) -> None:
    async with ui_command.running(kubeconfig, folder) as (process, url):
        for _ in range(3):
            assert (await ui_command.load(url)).strip() == CONTENT
        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
        assert process.returncode == 130
