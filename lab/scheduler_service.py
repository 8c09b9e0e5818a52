"""The Service through which the API server's proxy reaches the scheduler, whose process is not a pod in a lab.

The proxy connects only to addresses of Pods in the Service's namespace (kube-apiserver's
`pkg/registry/core/service/storage`), and endpoints cannot be loopback addresses. Therefore a Pod object without
containers that run has the address of the machine, and the scheduler listens there.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from allocation.names import SYSTEM_NAMESPACE
from lab import kubectl, network
from lab.client import client
from lab.layout import Layout, Port
from scheduler.api.namespaced.paths import PORT_NAME, SERVICE

_ELSEWHERE: Final = ("198.51.100.1", 9)
"""An address for documentation (RFC 5737): only the route to it is looked up, nothing is sent."""


def address(layout: Layout) -> str:
    """Return an address of the machine other than a loopback address, or an empty string."""
    if network.has_address(layout):
        return layout.node_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def publish(layout: Layout, at: str) -> None:
    """Make the scheduler at address `at` the endpoint of the Service."""
    metadata = {"name": SERVICE, "namespace": SYSTEM_NAMESPACE}
    reference = {"kind": "Pod", **metadata}
    port = {"name": PORT_NAME, "port": layout.port(Port.SCHEDULER_API), "protocol": "TCP"}
    kubectl.apply(
        layout,
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec()},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [port]}},
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": metadata,
            "subsets": [{"addresses": [{"ip": at, "targetRef": reference}], "ports": [port]}],
        },
    )
    status = {"status": {"phase": "Running", "podIP": at, "podIPs": [{"ip": at}]}}
    client(layout).patch("pod", SERVICE, status, namespace=SYSTEM_NAMESPACE, subresource="status")


def _spec() -> dict[str, Any]:
    """Return the spec of a Pod that no scheduler places, within the pod security level of its namespace."""
    return {
        "schedulerName": "nobody",
        "schedulingGates": [{"name": "lab.tranche/host-process"}],
        "serviceAccountName": "tranche-scheduler",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "scheduler",
                "image": "tranche.local/host-process",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }
