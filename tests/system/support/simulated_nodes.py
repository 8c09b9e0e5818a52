"""Simulated nodes in addition to those that the lab has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab import components, kubectl, wait
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

_PATIENCE_S = 60.0


@contextmanager
def running(layout: Layout, node: str) -> Iterator[str]:
    """Run a simulated node, which is deleted afterwards, with what an agent or a test has reported of it."""
    component = components.Component(
        f"simulated-{node}", (components.LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", node)
    )
    components.start(layout, component)
    wait.until(
        lambda: kubectl.run(layout, "get", "node", node, "--ignore-not-found"), what="node", timeout_s=_PATIENCE_S
    )
    yield node
    Daemon(layout, component.name).stop()
    kubectl.run(layout, "delete", "gpunodestatus", node, "--ignore-not-found")
    kubectl.run(layout, "delete", "node", node)
