"""Lists are read in pages that are small enough not to block the event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from cluster.api_observer import ApiObserver
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.objects import Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.api import Api


class Server:
    """An API server with pods of one size, which records the limits of list requests."""

    traffic = ApiObserver()

    def __init__(self, *, pods: int, size: int) -> None:
        self.pods = [_pod(number, size) for number in range(pods)]
        self.limits: list[int] = []
        self.largest = 0

    async def request(self, _method: str, _path: str, *, params: dict[str, str], **_: Any) -> bytes:
        """Return a page of pods."""
        begin, limit = int(params.get("continue", "0")), int(params["limit"])
        self.limits.append(limit)
        page = self.pods[begin : begin + limit]
        more = str(begin + limit) if begin + limit < len(self.pods) else ""
        body = msgspec.json.encode({"metadata": {"resourceVersion": "1", "continue": more}, "items": page})
        self.largest = max(self.largest, len(body))
        return body

    @asynccontextmanager
    async def open(self, *_: Any, **__: Any) -> AsyncIterator[None]:
        """Open a watch on which nothing arrives."""
        await asyncio.Event().wait()
        yield


def _pod(number: int, size: int) -> dict[str, Any]:
    meta = {"name": f"p{number}", "namespace": "a", "uid": f"u{number}", "annotations": {"notes": "x" * size}}
    return {"metadata": {**meta, "resourceVersion": str(number)}, "spec": {}}


@pytest.mark.parametrize(
    ("pods", "size", "last"), [(3_000, 1_000, 500), (300, 200_000, 10), (120, 1_000_000, 4)], ids=str
)
async def test_page_size_adapts_to_the_size_of_objects(pods: int, size: int, last: int) -> None:
    """A page has 500 small objects or a few large ones, and no object is missing."""
    server = Server(pods=pods, size=size)
    informer = Informer(cast("Api", server), PODS, Pod)
    running = asyncio.create_task(informer.run())
    async with asyncio.timeout(30):
        await informer.synced.wait()
    running.cancel()
    assert len(informer) == pods
    assert server.limits[0] == 100
    assert last <= server.limits[-1] <= 2 * last
    assert all(limit <= 2 * last for limit in server.limits[1:])
