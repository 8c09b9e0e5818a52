"""A fake API server with one Lease, for tests of elections."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from cluster.api import Api
from cluster.errors import ConflictError, NotFoundError


class Leases(Api):
    """An API server with one Lease, which it changes only for requests with the present resourceVersion.

    Every response takes an iteration of the event loop, so that concurrent requests can interleave in every order.
    """

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.asked = 0
        self.being_asked = asyncio.Event()

    async def get(self, _resource: Any, kind: Any, **_: Any) -> Any:
        """Return the Lease."""
        self.asked += 1
        self.being_asked.set()
        if self.spec is None:
            raise NotFoundError(request="get", status=404, reason="NotFound", message="")
        lease = msgspec.convert({"metadata": {"resourceVersion": str(self.version)}, "spec": self.spec}, kind)
        await asyncio.sleep(0)
        return lease

    async def create(self, _resource: Any, body: Any, **_: Any) -> bytes:
        """Create the Lease."""
        self.spec = dict(body["spec"])
        return b""

    async def merge(self, _resource: Any, body: Any, **_: Any) -> bytes:
        """Change the Lease."""
        assert self.spec is not None
        await asyncio.sleep(0)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ConflictError(request="merge", status=409, reason="Conflict", message="the object has been modified")
        self.version += 1
        self.spec.update(msgspec.to_builtins(body["spec"]))
        await asyncio.sleep(0)
        return b""


async def no_epoch() -> int:
    """Return 0, as before the first leader."""
    return 0
