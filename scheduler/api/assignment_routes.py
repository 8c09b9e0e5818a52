"""The HTTP routes by which a pod gets an index or a host port; `scheduler.api.openapi` describes them.

Callers write the number into the pod, so they need `patch pods` in its namespace. Their tokens are always reviewed.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from allocation.errors import AllocationError
from allocation.names import HOST_PORT, INDEX
from scheduler.api.assignment_document import ASSIGN_HOST_PORT, ASSIGN_INDEX
from scheduler.api.assignment_types import AssignedNumber, PodReference
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.responses import NOT_DECIDING, HttpError, json_handler, read_body
from scheduler.assignments import Assignments, Numbers
from scheduler.objects import Pod

_LARGEST_BODY: Final = 4 * 1024

FindPod = Callable[[str, str], Pod | None]
"""Returns a pod by its name and namespace."""


def assignment_routes(
    current: Callable[[], tuple[Assignments, FindPod] | None], *, gate: NamespaceGate
) -> list[web.RouteDef]:
    """Return the routes; `current` returns the numbers of the current term, or None outside a term."""

    async def assigned(
        request: web.Request,
        asked: PodReference,
        *,
        annotation: str,
        numbers: Callable[[Assignments], Numbers],
    ) -> AssignedNumber:
        async with gate.admitted(request, verb="patch", namespace=asked.namespace):
            found = current()
            if found is None:
                raise HttpError(503, NOT_DECIDING)
            assignments, find_pod = found
            pod = find_pod(asked.pod, asked.namespace)
            if pod is None or pod.finished:
                raise HttpError(404, f"pod {asked.namespace}/{asked.pod} does not exist, or has ended")
            try:
                number = numbers(assignments).assign(pod)
            except AllocationError as error:
                raise HttpError(409, str(error)) from None
            return AssignedNumber(asked.namespace, asked.pod, number, annotation)

    async def index(request: web.Request) -> msgspec.Struct:
        names = {key: request.query.get(key, "") for key in ("namespace", "pod")}
        if not all(names.values()):
            raise HttpError(400, "name the pod: ?namespace=NAMESPACE&pod=POD")
        return await assigned(request, PodReference(**names), annotation=INDEX, numbers=lambda each: each.indexes)

    async def port(request: web.Request) -> msgspec.Struct:
        asked = _read(await read_body(request, most=_LARGEST_BODY))
        return await assigned(request, asked, annotation=HOST_PORT, numbers=lambda each: each.ports)

    return [
        web.get(ASSIGN_INDEX, json_handler(_deciding(current, index))),
        web.post(ASSIGN_HOST_PORT, json_handler(_deciding(current, port))),
    ]


def _deciding(
    current: Callable[[], object], handler: Callable[[web.Request], Awaitable[msgspec.Struct]]
) -> Callable[[web.Request], Awaitable[msgspec.Struct]]:
    """Return a handler of a leader: another replica reviews no callers and reads no bodies."""

    async def handle(request: web.Request) -> msgspec.Struct:
        if current() is None:
            raise HttpError(503, NOT_DECIDING)
        return await handler(request)

    return handle


def _read(body: bytes) -> PodReference:
    try:
        asked = msgspec.json.decode(body, type=PodReference)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f'the body must be {{"namespace":NAMESPACE,"pod":POD}}: {error}') from None
    if not asked.namespace or not asked.pod:
        raise HttpError(400, "namespace and pod must not be empty")
    return asked
