"""The HTTP routes for administrators and tools; `scheduler.api.openapi` describes them."""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import web

from cluster.manifest import UnreadableManifestError
from scheduler.api import adjustment, capacity, manifest_pod, openapi, request_body
from scheduler.api.gang_explanation import MOST_SECONDS, Rehearsed
from scheduler.api.manifest_pod import Admit, UnknownSchedulerError
from scheduler.api.openapi import ADJUST, ALLOCATION, CAPACITY, EXPLAIN, GANGS, OPENAPI, QUEUES, QUOTAS, SIMULATE
from scheduler.api.queries import Queries
from scheduler.api.request_body import LARGEST_BODY, Manifests
from scheduler.api.responses import NOT_DECIDING, HttpError, json_handler, read_body, require_queue
from scheduler.pacing import Pacer

API_PATHS: Final = frozenset({ADJUST, ALLOCATION, CAPACITY, EXPLAIN, GANGS, QUEUES, QUOTAS, SIMULATE})
"""The paths that require an authenticated caller. The OpenAPI document is public."""

_CLOSED: Final = (
    "the API is served on loopback only, unless the scheduler's settings have a certificate (serving.certificate_file)"
    " and allowed callers (serving.client_ca_file, serving.users or serving.groups)"
)


class _Routes:
    """The handlers."""

    def __init__(self, queries: Callable[[], Queries | None], admit: Admit, *, is_open: bool) -> None:
        self._queries = queries
        self._admit = admit
        self._is_open = is_open
        self._parsing = asyncio.Lock()
        self._description = msgspec.json.encode(openapi.document())

    async def describe(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._description, content_type="application/json")

    async def allocation(self, _request: web.Request) -> msgspec.Struct:
        return self._current().allocation()

    async def queues(self, _request: web.Request) -> msgspec.Struct:
        return self._current().queues()

    async def quotas(self, _request: web.Request) -> msgspec.Struct:
        return self._current().quotas()

    async def gangs(self, request: web.Request) -> msgspec.Struct:
        chosen = {key: request.query[key] for key in ("namespace", "name", "after") if key in request.query}
        async with self._current().cycle.state.turn:
            return await Pacer().run(self._current().gangs(**chosen))

    async def explain(self, request: web.Request) -> msgspec.Struct:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        queries, state = self._current(), self._current().cycle.state
        rehearsed: Rehearsed = None
        if queries.is_rehearsed(namespace, name):
            with suppress(TimeoutError):
                async with state.alone():
                    rehearsed = await Pacer().run(queries.rehearse(namespace, name), most_seconds=MOST_SECONDS)
        async with state.inquiry:
            explanation = await Pacer().run(
                queries.explain(namespace, name, rehearsed=rehearsed, cards_of=_nodes(request))
            )
        if explanation is None:
            raise HttpError(404, f"pod {namespace}/{name} does not exist")
        return explanation

    async def simulate(self, request: web.Request) -> msgspec.Struct:
        try:
            manifests = await self._manifests(request)
            async with self._current().cycle.state.inquiry:
                return await Pacer().run(self._current().simulate(manifests, self._admit, cards_of=_nodes(request)))
        except UnreadableManifestError as error:
            raise HttpError(400, str(error)) from None
        except UnknownSchedulerError:
            raise HttpError(500, "scheduler framework not found") from None  # TensorFusion's text

    async def capacity(self, request: web.Request) -> msgspec.Struct:
        require_queue(self._current().cycle.state)
        namespace = request.query.get("namespace", "default")
        try:
            manifests = await self._manifests(request) if request.method == "POST" else None
            async with self._current().cycle.state.alone():
                is_over = capacity.deadline(time.monotonic)
                return await Pacer().run(
                    self._current().capacity(manifests, self._admit, namespace=namespace, is_over=is_over)
                )
        except UnreadableManifestError as error:
            raise HttpError(400, str(error)) from None
        except UnknownSchedulerError as error:
            raise HttpError(422, manifest_pod.other_scheduler_message(str(error), namespace)) from None

    async def _manifests(self, request: web.Request) -> Manifests:
        """Return what the body of a request has; raise UnreadableManifestError if it is not a Pod."""
        self._current()  # a replica that cannot respond does not read the body
        body = await read_body(request, most=LARGEST_BODY)
        # Large YAML takes seconds to parse, so one body at a time is parsed next to the scheduling loop. The response
        # is about the pods that were scheduled in the meantime, too.
        async with self._parsing:
            return await asyncio.to_thread(request_body.parse, body)

    async def adjust(self, request: web.Request) -> msgspec.Struct:
        self._current()
        asked = adjustment.read_question(await read_body(request, most=LARGEST_BODY))
        async with self._current().cycle.state.turn:
            found = self._current().adjust(asked.namespace, asked.pod, asked.resize)
        if found is None:
            raise HttpError(404, f"pod {asked.namespace}/{asked.pod} does not exist")
        return found

    def _current(self) -> Queries:
        """Return the queries of the current term; raise 403 where the API is closed, 503 outside a term."""
        if not self._is_open:
            raise HttpError(403, _CLOSED)
        queries = self._queries()
        if queries is None:
            raise HttpError(503, NOT_DECIDING)
        return queries


def api_routes(queries: Callable[[], Queries | None], *, admit: Admit, is_open: bool) -> list[web.RouteDef]:
    """Return the routes.

    `queries` returns those of the current term, or None outside a term. If `is_open` is False, callers cannot be
    authenticated, and every request but that for the OpenAPI document is refused.
    """
    routes = _Routes(queries, admit, is_open=is_open)
    return [
        web.get(OPENAPI, routes.describe),
        web.get(ALLOCATION, json_handler(routes.allocation)),
        web.get(QUEUES, json_handler(routes.queues)),
        web.get(QUOTAS, json_handler(routes.quotas)),
        web.get(GANGS, json_handler(routes.gangs)),
        web.get(EXPLAIN, json_handler(routes.explain)),
        web.post(SIMULATE, json_handler(routes.simulate)),
        web.get(CAPACITY, json_handler(routes.capacity)),
        web.post(CAPACITY, json_handler(routes.capacity)),
        web.post(ADJUST, json_handler(routes.adjust)),
    ]


def _nodes(request: web.Request) -> Collection[str] | None:
    """Return the nodes whose cards the caller requests, or None for the default."""
    return request.query.getall("node", None)
