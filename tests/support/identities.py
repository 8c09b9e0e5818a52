"""The API server for others than the administrator: our processes by their tokens, kubelets, users with a role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocation.names import SYSTEM_NAMESPACE
from lab import kubeconfig
from lab.client import Client, client

if TYPE_CHECKING:
    from lab.layout import Layout

_GROUP = "rbac.authorization.k8s.io"


def process(layout: Layout, name: str, *, node: str = "") -> Client:
    """Return the API as one of our processes has it, by a token of its account; with `node` bound to that Node."""
    path = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name=f"tranche-{name}", node=node)
    return client(layout, kubeconfig=path)


def kubelet(layout: Layout, node: str) -> Client:
    """Return the API as the kubelet of a node has it."""
    return client(layout, user=f"system:node:{node}", groups=("system:nodes",))


def tenant(layout: Layout, namespace: str, *, role: str = "edit") -> Client:
    """Return the API as a user has it who has one of Kubernetes' own roles in a namespace only."""
    user = f"{role}s-in-{namespace}"
    grant(layout, namespace, user, role=role)
    return client(layout, user=user)


def grant(layout: Layout, namespace: str, user: str, *, role: str) -> None:
    """Give a user one of Kubernetes' own roles in a namespace."""
    client(layout).apply(
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": namespace},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
        }
    )
