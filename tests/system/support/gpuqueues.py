"""GpuQueues of tests, and the pods that name them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allocation.names import CHARGED_TO, QUEUE
from cluster.resource import GPU_QUEUES
from lab.client import client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.system.conftest import Namespace


def set_queue(layout: Layout, name: str, **spec: Any) -> None:
    """Create or change a queue, for all namespaces unless `spec` says otherwise."""
    fields = {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, **spec}}
    client(layout).apply({"apiVersion": GPU_QUEUES.api_version, "kind": GPU_QUEUES.kind, **fields})


@contextmanager
def deleted(layout: Layout, *namespaces: Namespace) -> Iterator[None]:
    """Delete the pods of some namespaces, and all queues, afterwards."""
    try:
        yield
    finally:
        for each in namespaces:
            each.empty()
        for queue in client(layout).list(GPU_QUEUES.plural):
            delete_queue(layout, queue["metadata"]["name"])


def delete_queue(layout: Layout, name: str) -> None:
    """Delete a queue, in use or not."""
    client(layout).patch("gpuqueue", name, {"spec": {"suspended": True}})
    client(layout).delete("gpuqueue", name)


def status(layout: Layout, name: str) -> dict[str, Any]:
    """Return the status of a queue."""
    found: dict[str, Any] = client(layout).get("gpuqueue", name).get("status", {})
    return found


def labels(queue: str) -> dict[str, str]:
    """Return the labels of the pods of a queue."""
    return {QUEUE: queue}


def payer(pod: dict[str, Any]) -> str | None:
    """Return who pays for a pod with a node."""
    account: str | None = pod["metadata"]["annotations"].get(CHARGED_TO)
    return account
