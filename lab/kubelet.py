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

READY_S = 30.0


def start(layout: Layout) -> None:
    """Start it and wait until it is healthy. Harmless when it runs."""
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
        "--root-dir": layout.node / "kubelet",
    }
    arguments = (f"{flag}={value}" for flag, value in flags.items())
    daemon.start(namespace.inside(layout, [layout.bin / "kubelet", *arguments]))
    wait.until(
        lambda: health.is_alive(layout, Port.KUBELET_HEALTHZ),
        what="kubelet healthy",
        timeout_s=READY_S,
        daemons=[daemon],
    )


def stop(layout: Layout) -> None:
    """Stop it; the pods' containers run on."""
    Daemon(layout, "kubelet").stop()


def _configuration(layout: Layout) -> dict[str, Any]:
    """A KubeletConfiguration that keeps everything under the lab's folder and changes nothing of the machine."""
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
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(layout.node / "pod-logs"),
        "volumePluginDir": str(layout.node / "volume-plugins"),
        # No pod of the lab resolves names; an address keeps the kubelet from warning each of them.
        "resolvConf": str(resolver),
        "clusterDNS": [layout.node_address],
        # The images cannot be pulled again, and a full disk is the machine's affair.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
    }
