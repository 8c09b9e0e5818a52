"""Simulated nodes in addition to those that the lab has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lab import components
from lab.client import client
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout


@contextmanager
def running(layout: Layout, node: str) -> Iterator[str]:
    """Run a simulated node, which is deleted afterwards, with what an agent or a test has reported of it."""
    component = components.Component(
        f"simulated-{node}", (components.LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", node)
    )
    components.start(layout, component)
    client(layout).until(lambda nodes: node in nodes, "nodes", what=f"node {node}", timeout_s=PATIENCE_S)
    yield node
    Daemon(layout, component.name).stop()
    client(layout).delete("gpunodestatus", node, missing_ok=True)
    client(layout).delete("node", node)


def until_reported(layout: Layout, node: str, cards: int) -> None:
    """Wait until the agent has reported that many cards of a node."""

    def is_reported(statuses: Mapping[str, Any]) -> bool:
        return len(statuses.get(node, {}).get("status", {}).get("devices", ())) == cards

    client(layout).until(is_reported, "gpunodestatuses", what=f"{cards} cards of {node}", timeout_s=PATIENCE_S)
