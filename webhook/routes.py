"""The HTTP routes of admission and health, for any process that serves them.

The application that mounts them must accept bodies of `LARGEST_REVIEW` bytes (`client_max_size`); it answers larger
ones with 413.
"""

from aiohttp import web

from webhook.admission import Admission
from webhook.claims import UncachedClaimError
from webhook.review import UnreadableReviewError

PATHS = ("/mutate", "/webhook")
"""The paths of reviews: ours, and the one that a HAMi configuration calls."""
LARGEST_REVIEW = 8 * 1024 * 1024
"""Bytes. The API server accepts objects of up to 3 MiB, and a review may hold two."""

_JSON = "application/json"


class Health:
    """Whether the process accepts reviews.

    Attributes:
        ready: False until the process can serve, and again while it shuts down.
    """

    def __init__(self) -> None:
        self.ready = False


def admission_routes(admission: Admission) -> list[web.RouteDef]:
    """Return the routes of reviews."""

    async def review(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            return web.Response(body=admission.answer(body), content_type=_JSON)
        except UnreadableReviewError as error:
            return web.Response(status=400, text=str(error))
        except UncachedClaimError as uncached:
            response = web.Response(body=await admission.answer_after_reading(body, uncached), content_type=_JSON)
            # `webhook.review_protocol`, which is faster, may have handed over the connection; it takes the next one.
            response.force_close()
            return response

    return [web.post(path, review) for path in PATHS]


def health_routes(health: Health) -> list[web.RouteDef]:
    """Return the routes of the kubelet's probes: liveness and readiness."""

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
        return web.Response(text="ok") if health.ready else web.Response(status=503, text="not ready")

    return [web.get("/healthz", alive), web.get("/readyz", ready)]
