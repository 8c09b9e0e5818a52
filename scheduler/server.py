"""The scheduler's HTTP side: health and metrics, and in extender mode what kube-scheduler calls."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST

from cluster import exposition
from cluster.exposition import Registry

_MIB = 2**20
_SHUTDOWN_SECONDS = 1.0  # who is still answered then waits for a Binding that another replica will find


def health_routes(*, registries: Sequence[Registry], ready: Callable[[], bool]) -> list[web.RouteDef]:
    """Answer the routes: `/healthz` while the process lives, `/readyz` once it knows the cluster, `/metrics`."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="the caches are not complete yet")

    async def show_metrics(_request: web.Request) -> web.Response:
        body = b"".join([await exposition.text(registry) for registry in registries])
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)]


def application(
    routes: Iterable[web.RouteDef], *, largest_body_mib: int = 1, middlewares: Sequence[Middleware] = ()
) -> web.Application:
    """Answer an application that answers 413 to larger bodies than `largest_body_mib`."""
    app = web.Application(client_max_size=largest_body_mib * _MIB, middlewares=middlewares)
    app.add_routes(routes)
    return app


@asynccontextmanager
async def listening(
    app: web.Application, *, host: str | None, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; answers the port, which 0 leaves open.

    Raises:
        OSError: the port is taken, or the address is not ours.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
