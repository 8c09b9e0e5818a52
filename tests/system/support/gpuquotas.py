"""GpuQuotas of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    namespace.api.apply(manifest, namespace=namespace.name)


def delete_quota(namespace: Namespace, name: str) -> None:
    """Delete a GpuQuota of a namespace."""
    namespace.delete(GPU_QUOTAS.plural, name)
