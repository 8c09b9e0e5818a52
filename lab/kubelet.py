"""The kubelet of the real node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lab import health, kubeconfig, namespace, pki, wait
from lab.files import write_private
from lab.layout import Port
from lab.processes import Daemon

if TYPE_CHECKING:
    from lab.layout import Layout

LONGEST_SOCKET = "device-plugins/kubelet.sock"
"""The longest path of the kubelet's sockets in its folder."""


def start(layout: Layout) -> None:
    """Start the kubelet and wait until it is healthy. Idempotent."""
    daemon = Daemon(layout, "kubelet")
    if daemon.is_running:
        return
    own = kubeconfig.with_certificate(layout, layout.component_kubeconfig("kubelet"), leaf="kubelet")
    configuration = write_private(layout.config / "kubelet.json", json.dumps(_configuration(layout), indent=2))
    flags = {
        "--config": configuration,
        "--kubeconfig": own,
        "--hostname-override": layout.node_name,
        "--node-ip": layout.node_address,
        "--root-dir": layout.kubelet,
    }
    arguments = (f"{flag}={value}" for flag, value in flags.items())
    daemon.start(namespace.inside(layout, [layout.bin / "kubelet", *arguments]))
    wait.until(
        lambda: health.is_alive(layout, Port.KUBELET_HEALTHZ),
        what="kubelet healthy",
        daemons=[daemon],
    )


def stop(layout: Layout) -> None:
    """Stop the kubelet; the containers of its pods keep running."""
    Daemon(layout, "kubelet").stop()


def _configuration(layout: Layout) -> dict[str, Any]:
    """Return a KubeletConfiguration that keeps all files in the lab's folder and does not change the machine."""
    resolver = write_private(layout.config / "resolv.conf", "")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node_address,
        "port": layout.port(Port.KUBELET),
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": layout.port(Port.KUBELET_HEALTHZ),
        "readOnlyPort": 0,
        "tlsCertFile": str(pki.certificate(layout, "kubelet")),
        "tlsPrivateKeyFile": str(pki.key(layout, "kubelet")),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.certificate(layout, pki.CLUSTER_CA))},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failSwapOn": False,
        # Since 1.35 a kubelet refuses a machine with cgroup v1 by default.
        "failCgroupV1": False,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(layout.node / "pod-logs"),
        "volumePluginDir": str(layout.node / "volume-plugins"),
        # No pod of the lab resolves names; an address avoids a warning of the kubelet for each pod.
        "resolvConf": str(resolver),
        "clusterDNS": [layout.node_address],
        # The images cannot be pulled again, and disk space is not managed by the lab.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
    }
