"""The Lease that the tests of an election campaign for."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from cluster.api import Api
from cluster.errors import ConflictError, NotFoundError


class Leases(Api):
    """An API server with one Lease and one rule: who changes it names the version it has.

    Every answer takes a turn of the event loop, so that two requests under way at once meet in every order.
    """

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.asked = 0
        self.being_asked = asyncio.Event()

    async def get(self, _resource: Any, kind: Any, **_: Any) -> Any:
        """Answer the Lease."""
        self.asked += 1
        self.being_asked.set()
        if self.spec is None:
            raise NotFoundError(request="get", status=404, reason="NotFound", message="")
        answer = msgspec.convert({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec}, kind)
        await asyncio.sleep(0)
        return answer

    async def create(self, _resource: Any, body: Any, **_: Any) -> bytes:
        """Make the Lease."""
        self.spec = dict(body["spec"])
        return b""

    async def merge(self, _resource: Any, body: Any, **_: Any) -> bytes:
        """Change it."""
        assert self.spec is not None
        await asyncio.sleep(0)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ConflictError(request="merge", status=409, reason="Conflict", message="the object has been modified")
        self.version += 1
        self.spec.update(body["spec"])
        await asyncio.sleep(0)
        return b""


async def no_epoch() -> int:
    """Nobody has led before."""
    return 0
