"""The HTTP paths of admission and health, for any process that serves them.

The application that mounts them must accept bodies of `LARGEST_REVIEW` bytes (`client_max_size`); beyond that it
answers 413 by itself.
"""

from aiohttp import web

from webhook.admission import Admission
from webhook.review import UnreadableReviewError

PATHS = ("/mutate", "/webhook")
"""Of reviews: ours, and the one that a HAMi configuration calls."""
LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server accepts objects of up to 3 MiB, and a review may hold two."""


class Health:
    """Whether the process should be called.

    Attributes:
        ready: False until everything is in place, and again once it is to end.
    """

    def __init__(self) -> None:
        self.ready = False


def admission_routes(admission: Admission) -> list[web.RouteDef]:
    """Answer the paths of reviews."""

    async def review(request: web.Request) -> web.Response:
        try:
            return web.Response(body=admission.answer(await request.read()), content_type="application/json")
        except UnreadableReviewError as error:
            return web.Response(status=400, text=str(error))

    return [web.post(path, review) for path in PATHS]


def health_routes(health: Health) -> list[web.RouteDef]:
    """Answer the paths that a kubelet probes: alive, and ready to be called."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if health.ready else web.Response(status=503, text="not ready")

    return [web.get("/healthz", alive), web.get("/readyz", ready)]
