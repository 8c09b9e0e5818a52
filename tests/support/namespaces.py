"""Namespaces in which tests create pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import kubectl, wait

if TYPE_CHECKING:
    from lab.layout import Layout


def usable(layout: Layout, *names: str, timeout_s: float = 60.0) -> None:
    """Wait until pods can be created in these namespaces: each has its default ServiceAccount."""
    for name in names:
        wait.until(
            lambda name=name: kubectl.run(layout, "-n", name, "get", "serviceaccount", "default", "--ignore-not-found"),
            what=f"ServiceAccount default in {name}",
            timeout_s=timeout_s,
        )
