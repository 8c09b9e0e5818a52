"""The webhook's two listeners: reviews over TLS, metrics and health without."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.aiohttp import make_aiohttp_handler

from certs.source import LeafSource, listener_context
from webhook.admission import Admission
from webhook.canary import canary_routes
from webhook.connection import Connection
from webhook.metrics import Metrics
from webhook.routes import LARGEST_REVIEW, Health, admission_routes, health_routes
from webhook.settings import WebhookSettings

_Protocols = Callable[[], asyncio.Protocol]
_BACKLOG = 128
_SHUTDOWN_SECONDS = 1.0  # answers take milliseconds; who has not sent all of a review by now is not waited for


class Ports(msgspec.Struct, frozen=True):
    """Where the listeners are, which settings with port 0 leave open."""

    reviews: int
    metrics: int


@asynccontextmanager
async def serving(
    *,
    admission: Admission,
    health: Health,
    metrics: Metrics,
    source: LeafSource,
    settings: WebhookSettings,
) -> AsyncIterator[Ports]:
    """Listen while the block runs.

    Raises:
        OSError: a port is taken, or the address is not ours.
    """
    reviews = web.Application(client_max_size=LARGEST_REVIEW, middlewares=[_leaving(health)])
    reviews.add_routes([*admission_routes(admission), *health_routes(health), *canary_routes(source)])
    plain = web.Application()
    plain.add_routes([web.get("/metrics", make_aiohttp_handler(metrics.registry)), *health_routes(health)])
    host = settings.host or None
    async with (
        _routing(plain) as metrics_server,
        _listening(metrics_server, host=host, port=settings.metrics_port) as metrics_port,
        _routing(reviews) as others,
        _reviewing(admission, health, others) as connection,
        _listening(connection, host=host, port=settings.port, tls=listener_context(source)) as reviews_port,
    ):
        yield Ports(reviews=reviews_port, metrics=metrics_port)


@asynccontextmanager
async def _routing(application: web.Application) -> AsyncIterator[_Protocols]:
    """Answer what makes the protocol of a connection by the routes of `application`; at the end all are closed."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        yield cast("_Protocols", runner.server)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _reviewing(admission: Admission, health: Health, others: _Protocols) -> AsyncIterator[_Protocols]:
    open_ones: set[Connection] = set()
    try:
        yield lambda: Connection(answer=admission.answer, others=others, health=health, open_ones=open_ones)
    finally:
        for connection in tuple(open_ones):
            connection.close()


@asynccontextmanager
async def _listening(
    protocols: _Protocols, *, host: str | None, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(protocols, host, port, ssl=tls, backlog=_BACKLOG)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _leaving(health: Health) -> Middleware:
    """Close connections after their answer while not ready, so that API servers go elsewhere before we are gone."""

    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not health.ready:
            response.force_close()
        return response

    return close
