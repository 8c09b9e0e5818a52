"""The scheduler's HTTP side: health and metrics, and the application that all its routes make."""

from collections.abc import Callable, Iterable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST

from cluster import exposition
from cluster.exposition import Registry

_MIB = 2**20


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
