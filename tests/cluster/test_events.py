"""Events are recorded without delaying the requests that they report."""

import asyncio
from contextlib import suppress
from typing import Any

from cluster.api import Api
from cluster.events import Recorder
from cluster.metadata import Reference
from tests.support.patience import PATIENCE_S

POD = Reference(kind="Pod", name="p", namespace="n", uid="u", api_version="v1")


class Server(Api):
    """An API server that only records requests."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[str] = asyncio.Queue()

    async def request(self, _method: str, _path: str, **how: Any) -> bytes:  # type: ignore[override]
        """Record the reason of an event."""
        self.written.put_nowait(how["body"]["reason"])
        return b"{}"


def record(recorder: Recorder, reason: str) -> None:
    """Record an event."""
    recorder.record(POD, type="Normal", reason=reason, action="Testing", note="so it is")


async def test_events_yield_to_urgent_requests() -> None:
    """They are written as soon as no urgent request is in progress."""
    server = Server()
    recorder = Recorder(server, component="test", instance="test", patience_seconds=60)
    writing = asyncio.create_task(recorder.run())
    with recorder.ahead():
        with recorder.ahead():
            record(recorder, "First")
            await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.written.get()
                raise AssertionError("an event was written during an urgent request")
        record(recorder, "Second")
    async with asyncio.timeout(PATIENCE_S):
        assert {await server.written.get(), await server.written.get()} == {"First", "Second"}
    writing.cancel()


async def test_events_do_not_wait_forever() -> None:
    """A cluster that always has pods to bind gets its events nevertheless."""
    server = Server()
    recorder = Recorder(server, component="test", instance="test", patience_seconds=0.05)
    writing = asyncio.create_task(recorder.run())
    with recorder.ahead():
        record(recorder, "Late")
        async with asyncio.timeout(PATIENCE_S):
            assert await server.written.get() == "Late"
    writing.cancel()
