"""The routes of the page, and the application that serves them together with the API that the page reads."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from allocation.reason_words import WORDS
from scheduler.ui import assets
from scheduler.ui.stream import Streams

PAGE: Final = "/ui/"
EVENTS: Final = "/ui/events"
REASONS: Final = "/ui/reasons"
"""What the codes of reasons mean."""

_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


Guard = Callable[[Handler], Handler]
"""Returns a handler that admits readers, and leaves their `Viewer` for the handler that it was given."""


def ui_routes(streams: Streams, *, guard: Guard | None = None) -> list[web.RouteDef]:
    """Return the routes of the page; all of its own links are relative, so any path may come before `/ui/`.

    Its files are the same for each reader; what it shows comes by the event stream, before which `guard` is put.
    """
    files, meanings = assets.read_assets(), msgspec.json.encode(WORDS)

    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "ui/"})

    async def reasons(_request: web.Request) -> web.Response:
        return web.Response(body=meanings, content_type="application/json")

    async def file(request: web.Request) -> web.Response:
        return assets.respond(request, files)

    return [
        web.get("/", redirect),
        web.get("/ui", redirect),
        web.get(EVENTS, guard(streams.respond) if guard is not None else streams.respond),
        web.get(REASONS, reasons),
        web.get(PAGE + "{file:.*}", file),
    ]


def ui_application(routes: Sequence[web.RouteDef], *, middlewares: Sequence[Middleware] = ()) -> web.Application:
    """Return the application of the page's listener: `routes` of the page and of the API, behind `middlewares`."""
    app = web.Application(middlewares=[loopback_only, *middlewares])
    app.add_routes(routes)
    app.on_response_prepare.append(set_headers)
    return app


@web.middleware
async def loopback_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request for the name of another host, as a foreign site sends it that had its name resolve to us."""
    if request.url.host not in _LOOPBACK_HOSTS:
        return web.Response(status=421, text="the page is served to this host only: open it as http://localhost")
    return await handler(request)


async def set_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every response of the page has, when a response is prepared."""
    response.headers.update(assets.HEADERS)
