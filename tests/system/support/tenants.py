"""Accounts with rights in one namespace only, and `kubectl gpu` as they run it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lab import kubeconfig
from lab.client import client
from tests.support import gpu_command

if TYPE_CHECKING:
    from tests.system.conftest import Namespace


class Tenant(msgspec.Struct, frozen=True):
    """An account, its kubeconfig, and the namespace in which it has a role."""

    namespace: str
    kubeconfig: Path


def account(namespace: Namespace, name: str, *, role: str) -> Tenant:
    """Create a ServiceAccount with only one of Kubernetes' own roles (`view`, `edit`) in its namespace."""
    metadata = {"name": name, "namespace": namespace.name}
    client(namespace.layout).apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
    )
    identity = kubeconfig.service_account_kubeconfig(namespace.layout, namespace=namespace.name, name=name)
    return Tenant(namespace.name, identity)


def gpu(tenant: Tenant, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `kubectl gpu` as a tenant, in a context with the tenant's namespace."""
    return gpu_command.run(tenant.kubeconfig, *arguments, stdin=stdin)
