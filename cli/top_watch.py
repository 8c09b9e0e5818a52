"""`kubectl gpu top --watch`: the same again whenever it has changed."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from allocation.names import SYSTEM_NAMESPACE
from cli.counting import Seen
from cli.objects import LIVE, NodeMetadata, Pod
from cli.session import Session, live
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import Reflector
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES, PODS
from scheduler.heartbeats import Lease

_SETTLE_SECONDS: Final = 0.2
"""Changes come in bursts: the last of one is printed."""
_TICK_SECONDS: Final = 5.0
"""An agent falls silent without any change."""


def run(session: Session, *, first: Seen, shown: str, show: Callable[[Seen], str]) -> int:
    """Print what `show` makes of each later state, where it differs from what is `shown`; ends by Ctrl-C only."""
    _tell_of_lost_connections()
    try:
        return asyncio.run(_run(session, first, shown, show))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # one task failed, the others were cancelled for it


async def _run(session: Session, first: Seen, shown: str, show: Callable[[Seen], str]) -> int:
    changed = asyncio.Event()
    async with live(session.access) as api:
        copies = _copies(api, first, changed)
        async with asyncio.TaskGroup() as group:
            for copy in copies.values():
                group.create_task(copy.run())
            for copy in copies.values():
                await copy.synced.wait()
            while True:
                text = show(_seen(copies, session.client.clock_ahead))
                if text != shown:
                    print(f"{_separator(text)}{text}", end="", flush=True)
                    shown = text
                await _next(changed)


def _copies(api: Api, first: Seen, changed: asyncio.Event) -> dict[str, Reflector[Any]]:
    """Answer a copy of all that was to be read at the first look."""

    def follow(resource: Any, kind: Any, **options: Any) -> Reflector[Any]:
        return Reflector(
            api, resource, kind, on_set=lambda *_: changed.set(), on_delete=lambda _: changed.set(), **options
        )

    copies = {
        "statuses": follow(GPU_NODE_STATUSES, GpuNodeStatus),
        "pods": follow(PODS, Pod, selectors={"fieldSelector": LIVE}),
    }
    if first.nodes is not None:
        copies["nodes"] = follow(NODES, NodeMetadata)
    if first.leases is not None:
        copies["leases"] = follow(LEASES, Lease, namespace=SYSTEM_NAMESPACE)
    return copies


def _seen(copies: dict[str, Reflector[Any]], clock_ahead: float) -> Seen:
    return Seen(
        statuses=tuple(copies["statuses"]),
        pods=tuple(copies["pods"]),
        nodes=tuple(copies["nodes"]) if "nodes" in copies else None,
        leases=tuple(copies["leases"]) if "leases" in copies else None,
        now=time.time() + clock_ahead,
    )


async def _next(changed: asyncio.Event) -> None:
    """Wait for a change and the rest of its burst, but not for ever."""
    try:
        async with asyncio.timeout(_TICK_SECONDS):
            await changed.wait()
    except TimeoutError:
        return
    await asyncio.sleep(_SETTLE_SECONDS)
    changed.clear()


def _separator(text: str) -> str:
    """Keep tables and YAML documents apart; JSON documents are so by themselves."""
    if text.startswith("{"):
        return ""
    return "---\n" if text.startswith("nodes:") else "\n"


def _tell_of_lost_connections() -> None:
    """Say on standard error when what is shown may be old."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    log = logging.getLogger("cluster.reflector")
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
