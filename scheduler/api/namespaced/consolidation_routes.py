"""The HTTP routes by which an administrator has pods moved for one that waits; `scheduler.api.openapi` describes them.

Pods of any namespace may be evicted for it, so this requires `create pods/eviction` in all namespaces.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from scheduler.api.consolidation import Consolidation
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import CONSOLIDATION, MOST_MOVES
from scheduler.api.responses import NOT_DECIDING, HttpError, json_handler

T = TypeVar("T")

_EVICTION = "eviction"


def consolidation_routes(
    consolidation: Callable[[], Consolidation | None], *, gate: NamespaceGate
) -> list[web.RouteDef]:
    """Return the routes; `consolidation` returns that of the current term, or None outside a term."""

    def current() -> Consolidation:
        found = consolidation()
        if found is None:
            raise HttpError(503, NOT_DECIDING)
        return found

    async def begin(request: web.Request, namespace: str, name: str) -> msgspec.Struct:
        most_moves = _number(request)
        return _found(
            await current().begin(namespace, name, most_moves=most_moves), f"pod {namespace}/{name} does not exist"
        )

    async def progress(_request: web.Request, namespace: str, name: str) -> msgspec.Struct:
        return _found(current().progress(namespace, name), f"no pods are moved for pod {namespace}/{name}")

    def guarded(
        ask: Callable[[web.Request, str, str], Awaitable[msgspec.Struct]],
    ) -> Callable[[web.Request], Awaitable[msgspec.Struct]]:
        async def guarded(request: web.Request) -> msgspec.Struct:
            current()  # a replica that does not schedule reviews no callers
            namespace, name = request.match_info["namespace"], request.match_info["pod"]
            async with gate.admitted(request, verb="create", namespace="", subresource=_EVICTION):
                return await ask(request, namespace, name)

        return guarded

    return [
        web.post(CONSOLIDATION, json_handler(guarded(begin))),
        web.get(CONSOLIDATION, json_handler(guarded(progress))),
    ]


def _found(value: T | None, otherwise: str) -> T:
    if value is None:
        raise HttpError(404, otherwise)
    return value


def _number(request: web.Request) -> int | None:
    text = request.query.get(MOST_MOVES)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 4:
        raise HttpError(400, f"{MOST_MOVES} must be a number of pods")
    return int(text)
