"""Reads what a node's agent has published."""

from collections.abc import Callable
from typing import Any

from allocation.inventory import Card
from allocation.wire.hami import decode_register
from lab import wait
from lab.client import Client, client
from lab.layout import Layout
from tests.support.patience import PATIENCE_S

REGISTER = "hami.io/node-nvidia-register"


def as_scheduler(cluster: Layout) -> Client:
    """Return the API as the scheduler has it, which alone may write the spec of a GpuNodeStatus."""
    account = "system:serviceaccount:tranche-system:tranche-scheduler"
    return client(cluster, user=account, groups=("system:masters",))


def published(cluster: Layout, node: str) -> Any:
    """Wait until the node's GpuNodeStatus has a status, and return the object."""

    def found() -> Any:
        objects = client(cluster).list("gpunodestatuses")
        return next((item for item in objects if item["metadata"]["name"] == node and "status" in item), None)

    return wait.until(found, what=f"GpuNodeStatus {node}", timeout_s=PATIENCE_S)


def register(cluster: Layout, node: str) -> str | None:
    """Return the node's present register annotation."""
    annotation: str | None = client(cluster).get("node", node)["metadata"].get("annotations", {}).get(REGISTER)
    return annotation


def await_devices(cluster: Layout, node: str, condition: Callable[[list[Any]], bool], *, what: str) -> list[Any]:
    """Wait until the devices of the node's GpuNodeStatus meet the condition, and return them."""

    def found() -> list[Any] | None:
        devices: list[Any] = published(cluster, node)["status"]["devices"]
        return devices if condition(devices) else None

    return wait.until(found, what=what, timeout_s=PATIENCE_S)


def await_registered(
    cluster: Layout, node: str, condition: Callable[[tuple[Card, ...]], bool], *, what: str
) -> tuple[Card, ...]:
    """Wait until the cards of the node's register annotation meet the condition, and return them.

    An agent writes it after the GpuNodeStatus.
    """

    def found() -> tuple[Card, ...] | None:
        cards = decode_register(node, register(cluster, node) or "[]").cards
        return cards if condition(cards) else None

    return wait.until(found, what=what, timeout_s=PATIENCE_S)


def heartbeat(cluster: Layout, node: str) -> Any:
    """Return the spec of the node's heartbeat, or None if it does not exist."""
    leases = client(cluster).list("leases", namespace="tranche-system")
    return next((item["spec"] for item in leases if item["metadata"]["name"] == f"agent-{node}"), None)


def await_heartbeat(cluster: Layout, node: str, *, other_than: Any = None) -> Any:
    """Wait for a heartbeat that differs from `other_than`, and return its spec."""
    return wait.until(
        lambda: (now := heartbeat(cluster, node)) != other_than and now, what="heartbeat", timeout_s=PATIENCE_S
    )
