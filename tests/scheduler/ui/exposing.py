"""The page as it is exposed: over TLS, to readers whose tokens and rights an API server in memory reviews."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from aiohttp import web

from allocation.settings import AllocationSettings
from certs.ephemeral import EphemeralSource
from certs.leaf import ServerNames
from certs.source import listener_context
from cluster.api import Api
from cluster.errors import ApiError, UnreachableError
from cluster.http.listener import listening
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.health import application
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import PROXY, TOKEN_HEADER
from scheduler.api.namespaced.routes import namespace_routes
from scheduler.api.namespaced.turns import FairTurns
from scheduler.api.token_reviews import TokenReviews
from scheduler.ui.cordon import cordon_routes
from scheduler.ui.feed import Feed
from scheduler.ui.gate import URL, PageGate
from scheduler.ui.routes import set_headers, ui_routes
from scheduler.ui.sections.kinds import kinds as all_kinds
from scheduler.ui.stream import Streams
from tests.scheduler.support.builders import Clock
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.terms import Cluster, leading
from tests.scheduler.ui.pages import REPLICA, Reader, reading
from webhook import dry_run
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from scheduler.ui.feed import Kind

PAGE = ("get", URL)
RIGHTS = {
    "administrator": {PAGE, ("list", "")},
    "red": {PAGE, ("list", "red"), ("get", "red")},
    "blue": {PAGE, ("list", "blue"), ("get", "blue")},
    "stranger": set[tuple[str, str]](),
}
"""The users, whose tokens are their names, and what they may do: get a URL, or get or list the pods of a namespace."""


class ReviewingApi(MemoryApi):
    """An API server that reviews tokens and rights.

    Attributes:
        rights: the rights of each user.
        reviewed: the specs of all reviews.
        is_away: whether it cannot be reached for reviews.
        sent_by_users: user, method and path of the requests with their tokens.
        granted: the rights by which these are decided, which are those of the reviews unless a test differs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rights = {user: set(rights) for user, rights in RIGHTS.items()}
        self.reviewed: list[dict[str, Any]] = []
        self.is_away = False
        self.sent_by_users: list[tuple[str, str, str]] = []
        self.granted: Callable[[str], set[tuple[str, str]]] = lambda user: self.rights[user]

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Review a token or a right; serve everything else as before."""
        if "reviews" not in path:
            return await super().request(method, path, **how)
        await asyncio.sleep(0)
        if self.is_away:
            raise UnreachableError("away")
        spec = how["body"]["spec"]
        self.reviewed.append(spec)
        if "token" in spec:
            known = spec["token"] in self.rights
            user = {"username": spec["token"], "groups": ["system:authenticated"]} if known else {}
            return msgspec.json.encode({"status": {"authenticated": known, "user": user}})
        if "nonResourceAttributes" in spec:
            asked = spec["nonResourceAttributes"]
            wanted = (asked["verb"], asked["path"])
        else:
            asked = spec["resourceAttributes"]
            wanted = (asked["verb"], asked["namespace"] if asked["resource"] == "pods" else _object(asked))
        return msgspec.json.encode({"status": {"allowed": wanted in self.rights[spec["user"]]}})

    def as_user(self, token: str) -> Api:
        """Serve requests with this token as those of its user, who needs the right for each write."""
        return _AsUser(self, token)


class _AsUser(Api):
    """The API server as a user reaches it."""

    def __init__(self, api: ReviewingApi, user: str) -> None:
        self._api = api
        self._user = user

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Serve a request, if the user may send it."""
        self._api.sent_by_users.append((self._user, method, path))
        right = (method.lower(), path.removeprefix("/api/v1/"))
        if method != "GET" and right not in self._api.granted(self._user):
            raise ApiError(request=path, status=403, reason="Forbidden", message=f"{self._user} cannot {right}")
        # Of users, nothing is fenced: a write by them has no timeout that ends with a term.
        return await self._api.request(
            method, path, **{**how, "params": {**(how.get("params") or {}), "timeout": "1s"}}
        )


def _object(asked: Mapping[str, str]) -> str:
    """Return the object of a review as its path has it."""
    return f"{asked['resource']}/{asked['name']}"


class Exposed:
    """The exposed page.

    Attributes:
        cluster: what it shows.
        api: its API server.
        url: where the page's server is.
        decides: whether the replica has a term.
        clock: the clock by which reviews are cached and views end.
    """

    def __init__(self, cluster: Cluster, api: ReviewingApi) -> None:
        self.cluster = cluster
        self.api = api
        self.url = ""
        self.decides = True
        self.clock = Clock()

    def reading(self, user: str, *sections: str, after: str = "") -> AbstractAsyncContextManager[Reader]:
        """Follow sections as a user while the block runs."""
        return reading(self.url, sections, after=after, headers={TOKEN_HEADER: user}, ssl=False)

    async def get(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and text of a response that is not a stream."""
        return await self.send("GET", path, headers)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, str]:
        """Return status and text of the response to a request."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=headers, data=body, ssl=False) as response,
        ):
            return response.status, await response.text()


@asynccontextmanager
async def exposing(
    cluster: Cluster | None = None, *, kinds: Mapping[str, Kind] | None = None
) -> AsyncIterator[Exposed]:
    """Serve the exposed page of a cluster, by default one with two nodes, while the block runs.

    With `kinds` it has these sections, instead of all.
    """
    api = ReviewingApi()
    if cluster is None:
        cluster = Cluster(api)
        cluster.node("n1")
        cluster.node("n2")
    async with leading(cluster):
        site = Exposed(cluster, api)
        sections = all_kinds(cluster.recorder.recent) if kinds is None else kinds
        feed = Feed(lambda: cluster.term, kinds=sections, seconds=0.01)
        task = asyncio.create_task(feed.run())
        streams = Streams(feed, replica=lambda: REPLICA, most=32)
        tokens = TokenReviews(api, clock=site.clock)
        gate = PageGate(tokens, AccessReviews(api, seconds=60.0, clock=site.clock), clock=site.clock)
        access = AccessReviews(api)
        namespace_gate = NamespaceGate(tokens, access)
        namespaced = namespace_routes(
            lambda: cluster.term.queries,
            admit=partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings()),
            gate=namespace_gate,
            turns=FairTurns(clock=time.monotonic),
        )
        cordons = cordon_routes(
            lambda: cluster.term if site.decides else None,
            api=api,
            gate=namespace_gate,
            access=access,
            recorder=cluster.recorder,
        )
        app = application([*namespaced, *cordons, *ui_routes(streams, guard=gate.guarded)])
        app.on_response_prepare.append(set_headers)
        tls = listener_context(EphemeralSource(ServerNames(dns_names=("tranche-scheduler.tranche-system.svc",))))
        try:
            async with listening(app, host="127.0.0.1", port=0, tls=tls) as port:
                site.url = f"https://127.0.0.1:{port}/"
                yield site
        finally:
            task.cancel()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[str]:
    """Serve a server behind the path of the API server's proxy, which removes Authorization; yield the page's URL."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name not in ("Authorization", "Host")}
        target = url + request.match_info["rest"]
        async with session.request(
            request.method,
            target,
            params=request.query,
            headers=headers,
            data=await request.read(),
            ssl=False,
            allow_redirects=False,
            auto_decompress=False,
        ) as received:
            kept = {
                name: value
                for name, value in received.headers.items()
                if name not in ("Content-Length", "Transfer-Encoding")
            }
            response = web.StreamResponse(status=received.status, headers=kept)
            await response.prepare(request)
            async for chunk in received.content.iter_any():
                await response.write(chunk)
            return response

    app = web.Application()
    app.router.add_route("*", PROXY + "/{rest:.*}", forward)
    async with aiohttp.ClientSession() as session, listening(app, host="127.0.0.1", port=0) as port:
        yield f"http://127.0.0.1:{port}{PROXY}/ui/"
