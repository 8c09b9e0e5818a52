"""The scheduler's HTTP side: health and metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.metrics import Metrics


def application(*, metrics: Metrics, ready: Callable[[], bool]) -> web.Application:
    """Answer the routes: `/healthz` while the process lives, `/readyz` once it knows the cluster, `/metrics`."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="the caches are not complete yet")

    async def show_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    return app
