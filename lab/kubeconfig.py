"""Kubeconfigs for the lab's API server, each a single file with embedded credentials."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import yaml

from lab import pki
from lab.client import client
from lab.files import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

TOKEN_LIFETIME_S = 24 * 3600


def with_certificate(layout: Layout, path: Path, *, leaf: str) -> Path:
    """Write a kubeconfig that authenticates with the certificate `leaf`."""
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
    """Write a kubeconfig that authenticates as a ServiceAccount, with a token that is valid for a day.

    A process with this file has exactly the permissions that the manifests give it in a real cluster. With `node`, the
    token is bound to that Node, like the token of a pod there, and expires with it.

    Raises:
        LabError: the ServiceAccount or the Node does not exist.
    """
    token = service_account_token(layout, namespace=namespace, name=name, node=node)
    path = _service_account_path(layout, namespace=namespace, name=name, node=node)
    return token_kubeconfig(layout, path, token=token, user=name, namespace=namespace)


def service_account_token(layout: Layout, *, namespace: str, name: str, node: str = "") -> str:
    """Return a token of a ServiceAccount that is valid for a day, bound to a Node if one is named.

    Raises:
        LabError: the ServiceAccount or the Node does not exist.
    """
    api = client(layout)
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_LIFETIME_S}
    if node:
        uid = api.get("node", node)["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account = api.path("serviceaccount", name, namespace=namespace, subresource="token")
    token: str = api.request("POST", account, body=request)["status"]["token"]
    return token


def is_valid(layout: Layout, *, namespace: str, name: str) -> bool:
    """Return whether the token in a ServiceAccount's kubeconfig belongs to the existing account and has not expired.

    This compares the claims of the token with the account, because the API server accepts a token for some seconds
    after its account was deleted.
    """
    content = yaml.safe_load(_service_account_path(layout, namespace=namespace, name=name).read_text(encoding="utf-8"))
    payload = content["users"][0]["user"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    account = client(layout).find("serviceaccount", name, namespace=namespace)
    uid = account["metadata"]["uid"] if account is not None else None
    return bool(claims["kubernetes.io"]["serviceaccount"]["uid"] == uid and claims["exp"] > time.time())


def token_kubeconfig(layout: Layout, path: Path, *, token: str, user: str, namespace: str = "default") -> Path:
    """Write a kubeconfig that authenticates with `token`; `user` is only a name in the file."""
    return _write(layout, path, user=user, credentials={"token": token}, namespace=namespace)


def _service_account_path(layout: Layout, *, namespace: str, name: str, node: str = "") -> Path:
    return layout.component_kubeconfig(f"{namespace}.{name}{f'.{node}' if node else ''}")


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
