"""The HTTP paths by which people and tools ask what is decided and why; `scheduler.openapi` describes them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from cluster.manifest import UnreadableManifestError
from scheduler import openapi, submission
from scheduler.inquiry import Inquiry
from scheduler.openapi import ALLOCATION, EXPLAIN, OPENAPI, SIMULATE, Failure
from scheduler.submission import LARGEST_MANIFEST, Admit, UnknownSchedulerError

INQUIRY_PATHS: Final = frozenset({EXPLAIN, SIMULATE, ALLOCATION})
"""Those that tell of pods; the document that describes them is anybody's."""

_NOT_DECIDING: Final = "this replica does not decide: it does not lead, or has not read the cluster yet; ask the leader"
_CLOSED: Final = (
    "the API answers on loopback only, unless the scheduler's settings name a certificate (serving.certificate_file)"
    " and who may call (serving.client_ca_file, serving.users or serving.groups)"
)


class _NoAnswerError(Exception):
    """What to say instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Routes:
    """The handlers."""

    def __init__(self, asked: Callable[[], Inquiry | None], admit: Admit, *, is_open: bool) -> None:
        self._asked = asked
        self._admit = admit
        self._is_open = is_open
        self._reading = asyncio.Lock()
        self._description = msgspec.json.encode(openapi.document())

    async def describe(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._description, content_type="application/json")

    async def allocation(self, _request: web.Request) -> msgspec.Struct:
        return self._inquiry().allocation()

    async def explain(self, request: web.Request) -> msgspec.Struct:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = self._inquiry().explain(namespace, name, cards_of=_nodes(request))
        if found is None:
            raise _NoAnswerError(404, f"there is no pod {namespace}/{name}")
        return found

    async def simulate(self, request: web.Request) -> msgspec.Struct:
        self._inquiry()  # who cannot answer reads nothing
        body = await _body(request)
        try:
            # Large YAML takes its time, seconds at worst, and one's at a time is enough beside decisions; what is
            # decided meanwhile is decided before this.
            async with self._reading:
                manifest = await asyncio.to_thread(submission.parse, body)
            return self._inquiry().simulate(manifest, self._admit, cards_of=_nodes(request))
        except UnreadableManifestError as error:
            raise _NoAnswerError(400, str(error)) from None
        except UnknownSchedulerError:
            raise _NoAnswerError(500, "scheduler framework not found") from None

    def _inquiry(self) -> Inquiry:
        if not self._is_open:
            raise _NoAnswerError(403, _CLOSED)
        found = self._asked()
        if found is None:
            raise _NoAnswerError(503, _NOT_DECIDING)
        return found


def inquiry_routes(asked: Callable[[], Inquiry | None], *, admit: Admit, is_open: bool) -> list[web.RouteDef]:
    """Answer the paths.

    `asked` answers who can be asked in the term under way, None where there is none. Where `is_open` is False anybody
    could call, so nothing is told.
    """
    routes = _Routes(asked, admit, is_open=is_open)
    return [
        web.get(OPENAPI, routes.describe),
        web.get(ALLOCATION, _answering(routes.allocation)),
        web.get(EXPLAIN, _answering(routes.explain)),
        web.post(SIMULATE, _answering(routes.simulate)),
    ]


def _answering(ask: Callable[[web.Request], Awaitable[msgspec.Struct]]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        try:
            status, said = 200, await ask(request)
        except _NoAnswerError as error:
            status, said = error.status, Failure(str(error))
        return web.Response(status=status, body=msgspec.json.encode(said), content_type="application/json")

    return answer


def _nodes(request: web.Request) -> Collection[str] | None:
    """Answer the nodes whose cards are wanted, None for all."""
    return request.query.getall("node", None)


async def _body(request: web.Request) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > LARGEST_MANIFEST:
            raise _NoAnswerError(413, f"the body has more than {LARGEST_MANIFEST} bytes, the most that is read")
    return bytes(body)
