"""A page served over HTTP, and readers of its event stream."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from aiohttp import web

from allocation.settings import AllocationSettings
from cluster.http.listener import listening
from scheduler.api.routes import api_routes
from scheduler.ui.feed import Feed
from scheduler.ui.history import History
from scheduler.ui.messages import Replica
from scheduler.ui.routes import ui_application, ui_routes
from scheduler.ui.sections.kinds import kinds
from scheduler.ui.stream import Streams
from scheduler.ui.viewer import ADMINISTRATOR, VIEWER, Viewer
from tests.scheduler.support.terms import PATIENCE_S, Cluster, leading
from webhook import dry_run
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aiohttp.typedefs import Handler

REPLICA = Replica("deciding", "", "a", "loop", "0.1.0")


class Site:
    """The page.

    Attributes:
        cluster: what it shows.
        url: where it is.
        replica: what it says about the replica.
        decides: whether the replica has a term.
        viewer: who reads it.
        minute: the time, in Unix minutes.
        history: the use of cards, sampled by the test.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = ""
        self.replica = REPLICA
        self.decides = True
        self.viewer: Viewer = ADMINISTRATOR
        self.minute = 29_000_000
        self.history = History(lambda: cluster.term, unix=lambda: self.minute * 60.0)

    def reading(self, *sections: str, after: str = "") -> AbstractAsyncContextManager[Reader]:
        """Follow sections while the block runs."""
        return reading(self.url, sections, after=after)

    async def get(self, path: str, **how: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of a response."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path, **how) as response:
            return response.status, response.headers, await response.read()


@asynccontextmanager
async def reading(url: str, sections: Iterable[str], *, after: str = "", **how: Any) -> AsyncIterator[Reader]:
    """Follow sections of the page at `url` while the block runs; `how` is how to send the request."""
    query = [("section", name) for name in sections] + [("after", after)] * bool(after)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}ui/events", params=query, **how) as response,
    ):
        assert response.status == 200, await response.text()
        reader = Reader(response)
        task = asyncio.create_task(reader.run())
        try:
            yield reader
        finally:
            task.cancel()


class Reader:
    """What a page knows by its stream.

    Attributes:
        rows: the rows, by section.
        events: the name and content of every event.
        last_id: from where on the stream could go on.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.rows: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.events: list[tuple[str, Any]] = []
        self.last_id = ""

    async def run(self) -> None:
        """Read until the stream ends."""
        fields: dict[str, str] = {}
        async for line in self._response.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                continue
            self._apply(fields["event"], msgspec.json.decode(fields["data"]), fields.get("id", ""))
            fields = {}

    def _apply(self, event: str, content: Any, id_: str) -> None:
        self.last_id = id_ or self.last_id
        self.events.append((event, content))
        if event == "rows":
            table = self.rows[content["section"]]
            if content["reset"]:
                table.clear()
            table.update(content["rows"])
            for key in content["removed"]:
                table.pop(key, None)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition of what was read."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():  # noqa: ASYNC110 -- whatever comes
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"no {what}: {str(dict(self.rows))[:2000]}") from None


@asynccontextmanager
async def serving(cluster: Cluster | None = None, *, most: int = 8, **settings: Any) -> AsyncIterator[Site]:
    """Serve the page of a cluster, by default one with two nodes, while the block runs."""
    if cluster is None:
        cluster = Cluster()
        cluster.node("n1")
        cluster.node("n2")
    async with leading(cluster, **settings):
        site = Site(cluster)
        sections = kinds(cluster.recorder.recent, site.history)
        feed = Feed(lambda: cluster.term if site.decides else None, kinds=sections, seconds=0.01)
        task = asyncio.create_task(feed.run())
        streams = Streams(feed, replica=lambda: site.replica, most=most)
        admit = partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings())
        routes = [*ui_routes(streams), *api_routes(lambda: cluster.term.queries, admit=admit, is_open=True)]

        @web.middleware
        async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
            request[VIEWER] = site.viewer
            return await handler(request)

        try:
            async with listening(ui_application(routes, middlewares=[identify]), host="127.0.0.1", port=0) as port:
                site.url = f"http://127.0.0.1:{port}/"
                yield site
        finally:
            task.cancel()
