"""GpuQuotas of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cluster.resource import GPU_QUOTAS

if TYPE_CHECKING:
    from tests.system.conftest import Namespace


def set_quota(namespace: Namespace, name: str, **spec: Any) -> None:
    """Create a quota, or replace its spec."""
    manifest = {
        "apiVersion": GPU_QUOTAS.api_version,
        "kind": GPU_QUOTAS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    exists = namespace.kubectl("get", GPU_QUOTAS.plural, name, "--ignore-not-found", "-o", "name")
    namespace.kubectl("replace" if exists else "create", "-f", "-", stdin=msgspec.json.encode(manifest).decode())


def delete_quota(namespace: Namespace, name: str) -> None:
    """Delete a quota."""
    namespace.kubectl("delete", GPU_QUOTAS.plural, name)
