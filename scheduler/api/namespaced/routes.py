"""The HTTP routes for users with rights in one namespace; `scheduler.api.openapi` describes them.

The explanation of a pod, and whether it may have another size, require `get pods` in the namespace, a simulation and
capacity `create pods`, and shares, usage, queues and gangs `list pods`; usage of the whole cluster requires that in all
namespaces. As with the API server, every caller may read the
version.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec
from aiohttp import web

from allocation.steps import Steps
from allocation.wire.resize_record import Wish
from cluster import version
from cluster.manifest import UnreadableManifestError
from scheduler.api import adjustment, capacity, manifest_pod, request_body
from scheduler.api.access_reviews import Verb
from scheduler.api.adjustment_types import AdjustmentAnswer
from scheduler.api.gang_explanation import MOST_SECONDS, Rehearsed
from scheduler.api.manifest_pod import Admit, UnknownSchedulerError
from scheduler.api.namespaced import queues, redaction, shares
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import (
    ADJUSTMENT,
    CAPACITY,
    CLUSTER_USAGE,
    GANGS,
    POD_EXPLANATION,
    QUEUES,
    SHARES,
    SIMULATION,
    USAGE,
    VERSION,
)
from scheduler.api.namespaced.turns import FairTurns
from scheduler.api.queries import Queries
from scheduler.api.request_body import LARGEST_BODY, LARGEST_YAML, YAML, Manifests
from scheduler.api.responses import NOT_DECIDING, HttpError, json_handler, read_body, require_queue
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

T = TypeVar("T")


class _Routes:
    """The handlers. Computations take turns, so that callers cannot block scheduling on the event loop."""

    def __init__(
        self, queries: Callable[[], Queries | None], admit: Admit, gate: NamespaceGate, turns: FairTurns
    ) -> None:
        self._queries = queries
        self._admit = admit
        self._gate = gate
        self._turns = turns

    async def explain(self, request: web.Request, namespace: str) -> msgspec.Struct:
        name, nodes = request.match_info["pod"], _nodes(request)
        rehearsed = await self._rehearsed(namespace, name)
        found = await self._turns.take(
            lambda: self._current().explain(namespace, name, rehearsed=rehearsed, cards_of=nodes),
            within=self._current().cycle.state.inquiry,
        )
        if found is None:
            raise HttpError(404, f"pod {namespace}/{name} does not exist")
        return redaction.of_explanation(found)

    async def simulate(self, request: web.Request, namespace: str) -> msgspec.Struct:
        nodes = _nodes(request)
        try:
            manifests = await self._manifests(request, namespace)
            found = await self._turns.take(
                lambda: self._current().simulate(manifests, self._admit, cards_of=nodes),
                within=self._current().cycle.state.inquiry,
            )
        except UnreadableManifestError as error:
            raise HttpError(400, str(error)) from None
        except UnknownSchedulerError as error:
            raise HttpError(422, manifest_pod.other_scheduler_message(str(error), namespace)) from None
        return redaction.of_simulation(found)

    async def capacity(self, request: web.Request, namespace: str) -> msgspec.Struct:
        require_queue(self._current().cycle.state)
        try:
            manifests = await self._manifests(request, namespace) if request.method == "POST" else None
            found = await self._turns.take(
                lambda: self._current().capacity(
                    manifests,
                    self._admit,
                    namespace=namespace,
                    is_over=capacity.deadline(time.monotonic),
                    within_namespace=True,
                ),
                within=self._current().cycle.state.alone(),
            )
        except UnreadableManifestError as error:
            raise HttpError(400, str(error)) from None
        except UnknownSchedulerError as error:
            raise HttpError(422, manifest_pod.other_scheduler_message(str(error), namespace)) from None
        return redaction.of_capacity(found)

    async def shares(self, _request: web.Request, namespace: str) -> msgspec.Struct:
        return await self._turns.take(lambda: self._view(shares.view, namespace))

    async def queues(self, _request: web.Request, namespace: str) -> msgspec.Struct:
        return await self._turns.take(lambda: self._view(queues.view, namespace))

    async def usage(self, _request: web.Request, namespace: str) -> msgspec.Struct:
        return await self._turns.take(lambda: self._current().usage(namespace))

    async def cluster_usage(self, request: web.Request) -> msgspec.Struct:
        self._current()
        async with self._gate.admitted(request, verb="list", namespace=""):
            return await self._turns.take(lambda: self._current().usage())

    async def gangs(self, request: web.Request, namespace: str) -> msgspec.Struct:
        chosen = {key: request.query[key] for key in ("name", "after") if key in request.query}
        turn = self._current().cycle.state.turn
        return await self._turns.take(lambda: self._current().gangs(namespace=namespace, **chosen), within=turn)

    async def adjust(self, request: web.Request, namespace: str) -> msgspec.Struct:
        name, wish = request.match_info["pod"], adjustment.read_wish(await read_body(request, most=LARGEST_BODY))
        turn = self._current().cycle.state.turn
        found = await self._turns.take(lambda: self._adjusted(namespace, name, wish), within=turn)
        if found is None:
            raise HttpError(404, f"pod {namespace}/{name} does not exist")
        return found

    async def version(self, _request: web.Request) -> msgspec.Struct:
        return version.own()

    def guarded(
        self, ask: Callable[[web.Request, str], Awaitable[msgspec.Struct]], *, verb: Verb
    ) -> Callable[[web.Request], Awaitable[msgspec.Struct]]:
        """Return `ask` behind the gate; a replica that does not schedule reviews no callers."""

        async def guarded(request: web.Request) -> msgspec.Struct:
            self._current()
            namespace = request.match_info["namespace"]
            async with self._gate.admitted(request, verb=verb, namespace=namespace):
                return await ask(request, namespace)

        return guarded

    async def _rehearsed(self, namespace: str, name: str) -> Rehearsed:
        """Return what a decision about the gang of a pod would do; None if that is not known."""
        if self._current().is_rehearsed(namespace, name):
            with suppress(TimeoutError):
                return await self._turns.take(
                    lambda: self._current().rehearse(namespace, name),
                    within=self._current().cycle.state.alone(),
                    most_seconds=MOST_SECONDS,
                )
        return None

    async def _manifests(self, request: web.Request, namespace: str) -> Manifests:
        """Read a Pod of `namespace` and its claims. YAML, as people paste it, takes a turn: parsing it is slow."""
        if request.content_type != YAML:
            return _of_namespace(request_body.parse_json(await read_body(request, most=LARGEST_BODY)), namespace)
        body = await read_body(request, most=LARGEST_YAML)
        return _of_namespace(await self._turns.parse(lambda: request_body.parse(body)), namespace)

    def _adjusted(self, namespace: str, name: str, wish: Wish) -> Steps[AdjustmentAnswer | None]:
        """Return whether a pod may have another size, in one step."""
        yield from ()
        return self._current().adjust(namespace, name, wish)

    def _view(self, view: Callable[[ClusterState, Iterable[Pod], str], Steps[T]], namespace: str) -> Steps[T]:
        """Return what the pods of a namespace may see of the current term."""
        queries = self._current()
        return view(queries.cycle.state, queries.pods, namespace)

    def _current(self) -> Queries:
        """Return the queries of the current term; raise 503 outside a term."""
        queries = self._queries()
        if queries is None:
            raise HttpError(503, NOT_DECIDING)
        return queries


def namespace_routes(
    queries: Callable[[], Queries | None], *, admit: Admit, gate: NamespaceGate, turns: FairTurns
) -> list[web.RouteDef]:
    """Return the routes; `queries` returns those of the current term, or None outside a term."""
    routes = _Routes(queries, admit, gate, turns)
    return [
        web.get(POD_EXPLANATION, json_handler(routes.guarded(routes.explain, verb="get"))),
        web.post(SIMULATION, json_handler(routes.guarded(routes.simulate, verb="create"))),
        web.get(CAPACITY, json_handler(routes.guarded(routes.capacity, verb="create"))),
        web.post(CAPACITY, json_handler(routes.guarded(routes.capacity, verb="create"))),
        web.post(ADJUSTMENT, json_handler(routes.guarded(routes.adjust, verb="get"))),
        web.get(VERSION, json_handler(routes.version)),
        web.get(SHARES, json_handler(routes.guarded(routes.shares, verb="list"))),
        web.get(USAGE, json_handler(routes.guarded(routes.usage, verb="list"))),
        web.get(CLUSTER_USAGE, json_handler(routes.cluster_usage)),
        web.get(GANGS, json_handler(routes.guarded(routes.gangs, verb="list"))),
        web.get(QUEUES, json_handler(routes.guarded(routes.queues, verb="list"))),
    ]


def _nodes(request: web.Request) -> tuple[str, ...]:
    """Return the requested node, at most one."""
    named = request.query.getall("node", [])
    if len(named) > 1:
        raise HttpError(400, "node is given more than once; the cards of one node are shown at a time")
    return tuple(named)


def _of_namespace(manifests: Manifests, namespace: str) -> Manifests:
    """Return manifests whose pod is in `namespace`, also if it names none."""
    metadata = manifests.pod.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise HttpError(400, "metadata must be an object")
    if metadata.setdefault("namespace", namespace) != namespace:
        raise HttpError(
            400,
            f"metadata.namespace is {metadata['namespace']!r}, but the path has {namespace!r};"
            " use the pod's own namespace",
        )
    return manifests
