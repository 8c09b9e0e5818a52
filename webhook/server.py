"""The webhook's two listeners: reviews over TLS, metrics and health over plain HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from certs.source import LeafSource, listener_context
from cluster.http.connections import ConnectionTable
from cluster.http.exposition import metrics_route
from cluster.http.listener import accepting, listening, routing
from webhook.admission import Admission
from webhook.canary import canary_routes
from webhook.metrics import Metrics
from webhook.review_protocol import ReviewConnection
from webhook.routes import LARGEST_REVIEW, Health, admission_routes, health_routes
from webhook.settings import WebhookSettings

_ProtocolFactory = Callable[[], asyncio.Protocol]


class Ports(msgspec.Struct, frozen=True):
    """The ports of the listeners; the system chooses one where a setting is 0."""

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
        OSError: a port is in use, or the address does not belong to this machine.
    """
    reviews = web.Application(client_max_size=LARGEST_REVIEW, middlewares=[_close_while_not_ready(health)])
    reviews.add_routes([*admission_routes(admission), *health_routes(health), *canary_routes(source)])
    plain = web.Application()
    plain.add_routes([metrics_route(metrics.registry), *health_routes(health)])
    host, connections = settings.host or None, ConnectionTable()
    async with (
        listening(plain, host=host, port=settings.metrics_port) as metrics_port,
        routing(reviews, connections) as fallback,
        _reviewing(admission, health, fallback, connections) as connection,
        accepting(connection, connections, host=host, port=settings.port, tls=listener_context(source)) as reviews_port,
    ):
        yield Ports(reviews=reviews_port, metrics=metrics_port)


@asynccontextmanager
async def _reviewing(
    admission: Admission, health: Health, fallback: _ProtocolFactory, connections: ConnectionTable
) -> AsyncIterator[_ProtocolFactory]:
    try:
        yield lambda: ReviewConnection(
            answer=admission.answer, fallback=fallback, health=health, connections=connections
        )
    finally:
        for connection in connections.active:
            if isinstance(connection, ReviewConnection):
                connection.close()


def _close_while_not_ready(health: Health) -> Middleware:
    """Close connections after the response while not ready, so that API servers use another replica before we exit."""

    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not health.ready:
            response.force_close()
        return response

    return close
