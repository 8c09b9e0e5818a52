"""The webhook's two listeners: reviews over TLS, metrics and health without."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.aiohttp import make_aiohttp_handler

from certs.source import LeafSource, listener_context
from cluster.guests import Room
from cluster.listener import accepting, listening, routing
from webhook.admission import Admission
from webhook.canary import canary_routes
from webhook.connection import Connection
from webhook.metrics import Metrics
from webhook.routes import LARGEST_REVIEW, Health, admission_routes, health_routes
from webhook.settings import WebhookSettings

_Protocols = Callable[[], asyncio.Protocol]


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
    host, room = settings.host or None, Room()
    async with (
        listening(plain, host=host, port=settings.metrics_port) as metrics_port,
        routing(reviews, room) as others,
        _reviewing(admission, health, others, room) as connection,
        accepting(connection, room, host=host, port=settings.port, tls=listener_context(source)) as reviews_port,
    ):
        yield Ports(reviews=reviews_port, metrics=metrics_port)


@asynccontextmanager
async def _reviewing(admission: Admission, health: Health, others: _Protocols, room: Room) -> AsyncIterator[_Protocols]:
    try:
        yield lambda: Connection(answer=admission.answer, others=others, health=health, room=room)
    finally:
        for guest in room.guests:
            if isinstance(guest, Connection):
                guest.close()


def _leaving(health: Health) -> Middleware:
    """Close connections after their answer while not ready, so that API servers go elsewhere before we are gone."""

    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not health.ready:
            response.force_close()
        return response

    return close
