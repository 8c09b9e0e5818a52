"""Kubeconfigs: who somebody is to the lab's API server, in one file with nothing beside it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import yaml

from lab import kubectl, pki
from lab.files import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

TOKEN_LIFETIME = "24h"  # noqa: S105 - a duration


def with_certificate(layout: Layout, path: Path, *, leaf: str) -> Path:
    """Write a kubeconfig that authenticates by the certificate `leaf`."""
    return _write(
        layout,
        path,
        user=leaf,
        credentials={
            "client-certificate-data": _base64(pki.certificate(layout, leaf).read_bytes()),
            "client-key-data": _base64(pki.key(layout, leaf).read_bytes()),
        },
    )


def service_account_kubeconfig(layout: Layout, *, namespace: str, name: str, node: str = "") -> Path:
    """Write a kubeconfig that authenticates as a ServiceAccount, by a token that lasts a day.

    A process that starts with it has the permissions that the manifests give it in a real cluster, no more. With
    `node` the token is bound to that Node, as that of a pod there is, and ends with it.

    Raises:
        LabError: there is no such ServiceAccount, or no such Node.
    """
    bound = ("--bound-object-kind", "Node", "--bound-object-name", node) if node else ()
    token = kubectl.run(layout, "create", "token", name, "--namespace", namespace, "--duration", TOKEN_LIFETIME, *bound)
    path = layout.component_kubeconfig(f"{namespace}.{name}{f'.{node}' if node else ''}")
    return token_kubeconfig(layout, path, token=token.strip(), user=name, namespace=namespace)


def token_kubeconfig(layout: Layout, path: Path, *, token: str, user: str, namespace: str = "default") -> Path:
    """Write a kubeconfig that authenticates by `token`; `user` is only its name there."""
    return _write(layout, path, user=user, credentials={"token": token}, namespace=namespace)


def _write(layout: Layout, path: Path, *, user: str, credentials: dict[str, str], namespace: str = "default") -> Path:
    name = "tranche-lab"
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": layout.server,
                    "certificate-authority-data": _base64(pki.certificate(layout, pki.CLUSTER_CA).read_bytes()),
                },
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}],
        "current-context": name,
    }
    return write_private(path, yaml.safe_dump(content, sort_keys=False))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
