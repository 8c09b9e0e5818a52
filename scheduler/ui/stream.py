"""The event stream of an open page: the state of the replica, and the rows of the sections that the page shows."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final

from aiohttp import web

from scheduler.ui.feed import Feed, Topic, UnknownSectionError
from scheduler.ui.messages import Cursor, Replica, event, event_id, read_cursors, rows
from scheduler.ui.viewer import ADMINISTRATOR, VIEWER, Viewer

_HEARTBEAT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
"""How soon a page notices that the state of the replica is another."""
_GONE_SECONDS: Final = 0.2
"""How soon it is noticed that a reader has gone, such as to another section, so that its place is free again."""
_MOST_SECTIONS: Final = 8


class Streams:
    """The streams of all open pages."""

    def __init__(self, feed: Feed, *, replica: Callable[[], Replica], most: int) -> None:
        """Serve at most this number of streams at the same time."""
        self._feed = feed
        self._replica = replica
        self._most = most
        self._open = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Send events until the reader goes; `section` says of what, and `after` or Last-Event-ID from where on."""
        names = tuple(dict.fromkeys(request.query.getall("section", [])))
        if len(names) > _MOST_SECTIONS:
            return web.Response(status=400, text=f"a page follows at most {_MOST_SECTIONS} sections")
        try:
            for name in names:
                self._feed.topic(name)
        except UnknownSectionError as error:
            return web.Response(status=404, text=f"the page has no section {str(error)[:80]}")
        if self._open >= self._most:
            text = f"{self._most} pages are open, which is the limit (scheduler.ui.most_streams); close one"
            return web.Response(status=503, text=text, headers={"Retry-After": "10"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        cursors = read_cursors(request.headers.get("Last-Event-ID") or request.query.get("after", ""))
        self._open += 1
        try:
            await response.prepare(request)
            stream = _Stream(
                self._feed,
                self._replica,
                write=response.write,
                names=names,
                cursors=cursors,
                viewer=request.get(VIEWER, ADMINISTRATOR),
            )
            await stream.run(is_open=lambda: request.transport is not None and not request.transport.is_closing())
        except ConnectionError:
            pass  # the reader is gone
        finally:
            self._open -= 1
        return response


class _Stream:
    """One of them."""

    def __init__(
        self,
        feed: Feed,
        replica: Callable[[], Replica],
        *,
        write: Callable[[bytes], Awaitable[None]],
        names: tuple[str, ...],
        cursors: dict[str, Cursor],
        viewer: Viewer,
    ) -> None:
        self._feed = feed
        self._replica = replica
        self._write = write
        self._names = names
        self._cursors = {name: cursors[name] for name in names if name in cursors}
        self._viewer = viewer
        self._shown: object = None
        self._beat_at = 0.0

    async def run(self, *, is_open: Callable[[], bool]) -> None:
        """Send what changes while the connection `is_open`."""
        changed = asyncio.Event()
        while is_open():
            changed.clear()
            topics = [topic for name in self._names if (topic := self._feed.topic(name)) is not None]
            with ExitStack() as following:
                for topic in topics:
                    following.enter_context(topic.followed(changed))
                await self._state(topics)
                for topic in topics:
                    await self._rows(topic)
                if not await _wait(changed, is_open=is_open):
                    await self._beat()

    async def _state(self, topics: list[Topic]) -> None:
        shown = (self._replica(), tuple(topic.name for topic in topics if topic.failed))
        if shown != self._shown:
            replica, failed = self._shown = shown
            await self._write(event("replica", {"replica": replica, "failed": failed, "user": self._viewer.name}))

    async def _rows(self, topic: Topic) -> None:
        cursor = self._cursors.get(topic.name)
        seen = cursor.version if cursor is not None and cursor.generation == topic.generation else None
        if not topic.is_ready or seen == topic.table.version:
            return
        difference = topic.table.since(seen or 0)
        concerned = {row.namespace for _, row in difference.rows} | {namespace for _, namespace in difference.removed}
        permitted = await self._viewer.permitted(frozenset(concerned - {""})) | {""}
        self._cursors[topic.name] = Cursor(topic.generation, difference.version)
        begins_again = difference.is_complete and seen != 0
        if not begins_again and concerned.isdisjoint(permitted):
            return  # that something has changed is not for this reader either
        for each in rows(topic.name, difference, permitted=permitted, id_=event_id(self._cursors)):
            await self._write(each)

    async def _beat(self) -> None:
        if time.monotonic() - self._beat_at > _HEARTBEAT_SECONDS:
            self._beat_at = time.monotonic()
            await self._write(event("beat", {"at": time.time()}))


async def _wait(changed: asyncio.Event, *, is_open: Callable[[], bool]) -> bool:
    """Wait for a change, for a second at most, and not for a reader that has gone; return whether there was one."""
    until = time.monotonic() + _LOOK_SECONDS
    while is_open() and time.monotonic() < until:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GONE_SECONDS):
                return await changed.wait()
    return False
