"""Watching when pods get their nodes."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import msgspec

from benchmarks import cluster
from cluster.api import Api
from cluster.metadata import ListMeta
from cluster.resource import PODS

_PATIENCE_S = 300.0
_NAME = b'"metadata":{"name":"'
_VERSION = re.compile(rb'"resourceVersion":"([0-9]+)"')


class _List(msgspec.Struct):
    metadata: ListMeta


class Bound(msgspec.Struct, frozen=True):
    """The time at which each pod was observed with a node, by `time.perf_counter`, in that order."""

    at: Mapping[str, float]

    @property
    def since_first(self) -> list[float]:
        """Seconds from the first pod to each pod."""
        times = list(self.at.values())
        return [each - times[0] for each in times]

    @property
    def rate(self) -> float:
        """Pods per second from the first to the last pod, which excludes the scheduler's start."""
        return (len(self.at) - 1) / self.since_first[-1]


@asynccontextmanager
async def bound(api: Api, prefix: str, count: int) -> AsyncIterator["asyncio.Future[Bound]"]:
    """Yield a future that is set when `count` pods whose names begin with `prefix` have nodes."""
    at: dict[str, float] = {}
    result: asyncio.Future[Bound] = asyncio.get_running_loop().create_future()

    def note(name: str) -> None:
        if name.startswith(prefix) and name not in at:
            at[name] = time.perf_counter()
            if len(at) == count:
                result.set_result(Bound(MappingProxyType(at)))

    listening = asyncio.Event()

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not result.done():
            result.set_exception(error)
            listening.set()

    watching = asyncio.create_task(_watch(api, note, listening))
    watching.add_done_callback(ended)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await listening.wait()
            yield result
    except TimeoutError:
        raise SystemExit(f"only {len(at)} of {count} pods {prefix}… have a node after {_PATIENCE_S:g} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(api: Api, note: Callable[[str], None], listening: asyncio.Event) -> None:
    """Pass the name of each pod that gets a node from now on to `note`.

    The watch shares two processors with the measured processes, so only the name of an event is read, the first in its
    line. An API server ends the watch of a slow client; then the watch resumes after the last event.
    """
    path = PODS.path(namespace=cluster.NAMESPACE)
    listed = await api.request("GET", path, params={"limit": "1"})
    version, last = msgspec.json.decode(listed, type=_List).metadata.resource_version, b""
    while True:
        params = {"watch": "true", "resourceVersion": version, "fieldSelector": "spec.nodeName!="}
        async with api.open("GET", path, params=params, timeout=_PATIENCE_S) as response:
            listening.set()
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    begin = line.index(_NAME) + len(_NAME)
                    note(line[begin : line.index(b'"', begin)].decode())
                    last = line
        if match := _VERSION.search(last):
            version = match[1].decode()
