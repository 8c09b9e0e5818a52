"""How the API server stores, shows and refuses objects of one of this project's kinds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubectl
from lab.client import Client, client
from lab.connection import RefusedError
from lab.errors import LabError
from tests.support.access import may

if TYPE_CHECKING:
    from lab.layout import Layout


class Stored:
    """The objects of a kind on an API server.

    Attributes:
        api: the API server, for the administrator.
    """

    def __init__(self, layout: Layout, kind: str, *, namespace: str = "") -> None:
        """Name the kind as kubectl does, and the namespace if it has namespaces."""
        self.api: Client = client(layout)
        self._layout, self._kind, self._namespace = layout, kind, namespace

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create an object and return it as stored."""
        (stored,) = self.api.create(manifest, namespace=self._namespace, dry_run=dry_run)
        return stored

    def would_be(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Return an object as it would be stored."""
        return self.create(manifest, dry_run=True)

    def refusal(self, manifest: dict[str, Any]) -> str:
        """Create an object, which must be refused; return the message."""
        with pytest.raises(RefusedError) as caught:
            self.would_be(manifest)
        return caught.value.message

    def warning(self, manifest: dict[str, Any]) -> str:
        """Return what kubectl prints to standard error when it would create an object; empty without a warning."""
        try:
            options = ("--dry-run=server", "--warnings-as-errors", "-f", "-")
            kubectl.run(self._layout, "create", *options, stdin=json.dumps(manifest))
        except LabError as error:
            return str(error)
        return ""

    def get(self, name: str) -> dict[str, Any]:
        """Return an object."""
        return self.api.get(self._kind, name, namespace=self._namespace)

    def patch(self, name: str, patch: dict[str, Any], *, subresource: str = "") -> None:
        """Change an object, or its status."""
        self.api.patch(self._kind, name, patch, namespace=self._namespace, subresource=subresource)

    def listing(self, name: str, *options: str, kind: str = "") -> tuple[list[str], list[str]]:
        """Return the columns that `kubectl get` prints of an object, and their values."""
        scope = ("-n", self._namespace) if self._namespace else ()
        head, row = kubectl.run(self._layout, *scope, "get", kind or self._kind, name, *options).splitlines()
        return head.split(), row.split()

    def grant(self, user: str, role: str) -> None:
        """Give a user a cluster role: in the namespace if there is one, otherwise in the cluster."""
        kind = "RoleBinding" if self._namespace else "ClusterRoleBinding"
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        self.api.apply(binding, namespace=self._namespace)

    def may(self, user: str, verb: str, *, subresource: str = "") -> bool:
        """Return whether a user may do this with objects of the kind."""
        plural, _, group = self._kind.partition(".")
        resource = f"{plural}/{subresource}.{group}" if subresource else self._kind
        return may(client(self._layout, user=user), verb, resource, namespace=self._namespace)
