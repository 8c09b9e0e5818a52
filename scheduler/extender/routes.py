"""The HTTP paths of the verbs. Errors are sent as text, because kube-scheduler shows them in its events."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from scheduler.extender import preemption_wire, wire
from scheduler.extender.errors import RefusedError
from scheduler.extender.preemption_wire import PreemptionResult
from scheduler.extender.verbs import Extender
from scheduler.extender.wire import BindingResult, FilterResult, HostPriority, UnreadableError

PATHS = frozenset({"/filter", "/prioritize", "/preempt", "/bind"})
_NOT_DECIDING = (
    "this replica does not decide: it does not lead, or has not read the cluster yet; the replica next to the"
    " leading kube-scheduler does"
)


def extender_routes(deciding: Callable[[], Extender | None]) -> list[web.RouteDef]:
    """Return the routes; `deciding` returns the verbs of the current term, or None outside a term."""

    def route(path: str, respond: Callable[[Extender | None, bytes], Awaitable[web.Response]]) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            body, extender = await request.read(), deciding()
            return await respond(extender if extender is not None and extender.is_trusted else None, body)

        return web.post(path, handle)

    return [
        route("/filter", _filter),
        route("/prioritize", _prioritize),
        route("/preempt", _preempt),
        route("/bind", _bind),
    ]


async def _filter(extender: Extender | None, body: bytes) -> web.Response:
    if extender is None:
        return _json(FilterResult(error=_NOT_DECIDING))
    try:
        return _json(await extender.filter_by_news(wire.decode_args(body)))
    except UnreadableError as error:
        return _json(FilterResult(error=str(error)))


async def _prioritize(extender: Extender | None, body: bytes) -> web.Response:
    """Return scores; the response has no field for an error, so the status shows it."""
    if extender is None:
        return web.Response(status=503, text=_NOT_DECIDING)
    try:
        return _json(await extender.prioritize(wire.decode_args(body)))
    except UnreadableError as error:
        return web.Response(status=400, text=str(error))


async def _preempt(extender: Extender | None, body: bytes) -> web.Response:
    """Return the nodes that remain; kube-scheduler evicts no pods where the status shows an error."""
    if extender is None:
        return web.Response(status=503, text=_NOT_DECIDING)
    try:
        return _json(await extender.preempt(preemption_wire.decode(body)))
    except UnreadableError as error:
        return web.Response(status=400, text=str(error))


async def _bind(extender: Extender | None, body: bytes) -> web.Response:
    if extender is None:
        return _json(BindingResult(error=_NOT_DECIDING))
    try:
        await extender.bind(wire.decode_binding(body))
    except (UnreadableError, RefusedError) as error:
        return _json(BindingResult(error=str(error)))
    return _json(BindingResult())


def _json(result: FilterResult | PreemptionResult | BindingResult | list[HostPriority]) -> web.Response:
    return web.Response(body=wire.encode(result), content_type="application/json")
