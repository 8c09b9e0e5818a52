"""The HTTP paths of the verbs. What cannot be answered is told in words, as kube-scheduler shows them in its events."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from scheduler import extender_api
from scheduler.extender import Extender, RefusedError
from scheduler.extender_api import BindingResult, FilterResult, HostPriority, UnreadableError

PATHS = frozenset({"/filter", "/prioritize", "/bind"})
_NOT_DECIDING = (
    "this replica does not decide: it does not lead, or has not read the cluster yet; the replica beside the"
    " kube-scheduler that leads does"
)


def extender_routes(deciding: Callable[[], Extender | None]) -> list[web.RouteDef]:
    """Answer the paths; `deciding` answers the verbs of the term under way, None where there is none."""

    def route(path: str, answer: Callable[[Extender | None, bytes], Awaitable[web.Response]]) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            body, found = await request.read(), deciding()
            return await answer(found if found is not None and found.is_trusted else None, body)

        return web.post(path, handle)

    return [route("/filter", _filter), route("/prioritize", _prioritize), route("/bind", _bind)]


async def _filter(now: Extender | None, body: bytes) -> web.Response:
    if now is None:
        return _json(FilterResult(error=_NOT_DECIDING))
    try:
        return _json(await now.filter_by_news(extender_api.decode_args(body)))
    except UnreadableError as error:
        return _json(FilterResult(error=str(error)))


async def _prioritize(now: Extender | None, body: bytes) -> web.Response:
    """Answer scores; the answer has no place for an error, so the status tells."""
    if now is None:
        return web.Response(status=503, text=_NOT_DECIDING)
    try:
        return _json(now.prioritize(extender_api.decode_args(body)))
    except UnreadableError as error:
        return web.Response(status=400, text=str(error))


async def _bind(now: Extender | None, body: bytes) -> web.Response:
    if now is None:
        return _json(BindingResult(error=_NOT_DECIDING))
    try:
        await now.bind(extender_api.decode_binding(body))
    except (UnreadableError, RefusedError) as error:
        return _json(BindingResult(error=str(error)))
    return _json(BindingResult())


def _json(answer: FilterResult | BindingResult | list[HostPriority]) -> web.Response:
    return web.Response(body=extender_api.encode(answer), content_type="application/json")
