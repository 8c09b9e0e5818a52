"""`kubectl gpu top --watch`: print the output again whenever it changes."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from allocation.names import SYSTEM_NAMESPACE
from cli.kube.objects import LIVE, NodeMetadata, Pod
from cli.kube.session import Session, live
from cli.top.usage_counter import FleetObjects
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES, PODS

_SETTLE_SECONDS: Final = 0.2
"""Changes come in bursts; the output is printed once after each burst."""
_TICK_SECONDS: Final = 5.0
"""The interval of a look without a change: no object changes when an agent falls silent."""


def run(
    session: Session, *, first: FleetObjects, shown: str, show: Callable[[FleetObjects], str], stamp: Callable[[], str]
) -> int:
    """Print the output of `show` for each later state if it differs from `shown`; only Ctrl-C ends it.

    Each output begins with what `stamp` returns.
    """
    _report_lost_connections()
    try:
        return asyncio.run(_run(session, first, shown, show, stamp))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # one task failed, the others were cancelled for it


async def _run(
    session: Session, first: FleetObjects, shown: str, show: Callable[[FleetObjects], str], stamp: Callable[[], str]
) -> int:
    changed = asyncio.Event()
    async with live(session.access) as api:
        informers = _informers(api, first, changed)
        async with asyncio.TaskGroup() as group:
            for informer in informers.values():
                group.create_task(informer.run())
            for informer in informers.values():
                await informer.synced.wait()
            while True:
                text = show(_objects(informers, session.client.clock_ahead))
                if text != shown:
                    print(f"{_separator(text)}{stamp()}{text}", end="", flush=True)
                    shown = text
                await _next(changed)


def _informers(api: Api, first: FleetObjects, changed: asyncio.Event) -> dict[str, Informer[Any]]:
    """Return an informer for each kind of object that the first read was allowed to list."""

    def follow(resource: Any, kind: Any, **options: Any) -> Informer[Any]:
        return Informer(
            api, resource, kind, on_upsert=lambda *_: changed.set(), on_delete=lambda _: changed.set(), **options
        )

    informers = {
        "statuses": follow(GPU_NODE_STATUSES, GpuNodeStatus),
        "pods": follow(PODS, Pod, selectors={"fieldSelector": LIVE}),
    }
    if first.nodes is not None:
        informers["nodes"] = follow(NODES, NodeMetadata)
    if first.leases is not None:
        informers["leases"] = follow(LEASES, Lease, namespace=SYSTEM_NAMESPACE)
    return informers


def _objects(informers: dict[str, Informer[Any]], clock_ahead: float) -> FleetObjects:
    return FleetObjects(
        statuses=tuple(informers["statuses"]),
        pods=tuple(informers["pods"]),
        nodes=tuple(informers["nodes"]) if "nodes" in informers else None,
        leases=tuple(informers["leases"]) if "leases" in informers else None,
        now=time.time() + clock_ahead,
    )


async def _next(changed: asyncio.Event) -> None:
    """Wait for a change and the rest of its burst, at most `_TICK_SECONDS`."""
    try:
        async with asyncio.timeout(_TICK_SECONDS):
            await changed.wait()
    except TimeoutError:
        return
    await asyncio.sleep(_SETTLE_SECONDS)
    changed.clear()


def _separator(text: str) -> str:
    """Return the text that separates tables or YAML documents; JSON documents need none."""
    if text.startswith("{"):
        return ""
    return "---\n" if text.startswith("nodes:") else "\n"


def _report_lost_connections() -> None:
    """Print a note to standard error when the output may be stale."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    log = logging.getLogger("cluster.informer")
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
