"""The routes for health and metrics, and the application that serves the scheduler's routes."""

from collections.abc import Callable, Iterable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from cluster.http.exposition import Registry, metrics_route

_MIB = 2**20


def health_routes(*, registries: Sequence[Registry], unready: Callable[[], str]) -> list[web.RouteDef]:
    """Return `/healthz` (the process is alive), `/readyz` (it has read the cluster, or stands by) and `/metrics`.

    `unready` says why the process is not ready; empty if it is.
    """

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_request: web.Request) -> web.Response:
        if why := unready():
            return web.Response(status=503, text=why)
        return web.Response(text="ok")

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), metrics_route(*registries)]


def application(
    routes: Iterable[web.RouteDef], *, largest_body_mib: int = 1, middlewares: Sequence[Middleware] = ()
) -> web.Application:
    """Return an application that rejects bodies larger than `largest_body_mib` with 413."""
    app = web.Application(client_max_size=largest_body_mib * _MIB, middlewares=middlewares)
    app.add_routes(routes)
    return app
