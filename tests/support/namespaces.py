"""Namespaces in which tests create pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.client import client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout


def create(layout: Layout, name: str, labels: Mapping[str, str] | None = None) -> None:
    """Create a namespace, or change its labels, and wait until pods can be created in it."""
    metadata = {"name": name, "labels": dict(labels or {})}
    client(layout).apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    usable(layout, name)


def usable(layout: Layout, *names: str, timeout_s: float = 60.0) -> None:
    """Wait until pods can be created in these namespaces: each has its default ServiceAccount."""
    for name in names:
        client(layout).until(
            lambda accounts: "default" in accounts,
            "serviceaccounts",
            namespace=name,
            what=f"ServiceAccount default in {name}",
            timeout_s=timeout_s,
        )
