"""Health, metrics and the last measurement over HTTP, for the kubelet's probes, Prometheus and the scheduler."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from agent.measuring import Measurer
from agent.metrics import Metrics
from agent.service import Agent
from cluster.http.exposition import metrics_route
from cluster.http.listener import listening
from cluster.measurement import PATH

log = logging.getLogger(__name__)

_MOST_NAMES = 5


@asynccontextmanager
async def serving(
    agent: Agent, metrics: Metrics, measurer: Measurer, *, address: str, port: int
) -> AsyncIterator[None]:
    """Serve `/healthz`, `/readyz`, `/metrics` and `/usage` while the block runs.

    Raises:
        OSError: the port is in use.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        unpublished = agent.unpublished()
        if unpublished is None:
            return web.Response(status=503, text="the inventory has not been read yet\n")
        if unpublished:
            names = ", ".join(unpublished[:_MOST_NAMES]) + (", …" if len(unpublished) > _MOST_NAMES else "")
            return web.Response(status=503, text=f"not published yet ({len(unpublished)}): {names}\n")
        return web.Response(text="ok\n")

    async def usage(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(measurer.last), content_type="application/json")

    application = web.Application()
    routes = [web.get("/healthz", healthz), web.get("/readyz", readyz), metrics_route(metrics.registry)]
    application.add_routes([*routes, web.get(PATH, usage)])
    async with listening(application, host=address or None, port=port) as bound:
        log.info("serving health and metrics on port %d", bound, extra={"port": bound})
        yield
