"""A watch on which nothing arrives: because nothing changes, or because the server is gone."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from cluster.api_observer import ApiObserver
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.objects import Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.api import Api

SILENCE_S = 0.1


class Response:
    """The response to a watch: one event, or nothing, and then silence."""

    status = 200

    def __init__(self, *lines: bytes) -> None:
        self.content = self
        self._lines = list(lines)

    async def readany(self) -> bytes:
        """Return the next line; wait for ever after the last."""
        if not self._lines:
            await asyncio.Event().wait()
        return self._lines.pop(0)


class Server:
    """An API server without pods.

    Attributes:
        lists: how many lists were read.
        watches: the resourceVersions from which watches began.
        is_dead: whether it does not answer requests for watches.
    """

    traffic = ApiObserver()

    def __init__(self) -> None:
        self.lists = 0
        self.watches: list[str] = []
        self.is_dead = False

    async def request(self, *_: Any, **__: Any) -> bytes:
        """Return a list."""
        self.lists += 1
        return b'{"metadata": {"resourceVersion": "5"}, "items": []}'

    @asynccontextmanager
    async def open(self, *_: Any, params: dict[str, str], **__: Any) -> AsyncIterator[Response]:
        """Open a watch; the first has one pod."""
        if self.is_dead:
            await asyncio.Event().wait()
        self.watches.append(params["resourceVersion"])
        pod = b'{"metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7"}, "spec": {}}'
        yield Response(*[b'{"type": "ADDED", "object": ' + pod + b"}\n"][: len(self.watches) == 1])


async def test_silent_watch_is_continued_without_a_list(caplog: pytest.LogCaptureFixture) -> None:
    """The next watch begins where it ended: nothing is lost, and no warning is logged."""
    server = Server()
    informer = Informer(cast("Api", server), PODS, Pod, silence_seconds=SILENCE_S)
    with caplog.at_level(logging.INFO):
        running = asyncio.create_task(informer.run())
        async with asyncio.timeout(30):
            while len(server.watches) < 4:  # noqa: ASYNC110 -- a condition of the server
                await asyncio.sleep(0.01)
        running.cancel()
    assert server.watches[:4] == ["5", "7", "7", "7"]
    assert server.lists == 1
    assert len(informer) == 1
    assert informer.silent_seconds < 10 * SILENCE_S
    assert caplog.text == ""


async def test_server_that_does_not_answer_is_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    """Within the same time, although a watch may last for minutes; then everything is listed, with a warning."""
    server = Server()
    server.is_dead = True
    informer = Informer(cast("Api", server), PODS, Pod, silence_seconds=SILENCE_S)
    running = asyncio.create_task(informer.run())
    async with asyncio.timeout(30):
        while server.lists < 2:  # noqa: ASYNC110 -- a condition of the server
            await asyncio.sleep(0.01)
    running.cancel()
    assert "no answer for 0.1 s" in caplog.text
