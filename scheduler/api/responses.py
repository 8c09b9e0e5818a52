"""The responses of the API: a struct in JSON, or an error status with a message."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.state.cluster_state import ClusterState

NOT_DECIDING: Final = "this replica does not decide: it does not lead, or has not read the cluster yet; ask the leader"

_EXTENDER: Final = (
    "in extender mode the scheduler does not count pods, because kube-scheduler's requests do not wait; 'kubectl gpu"
    " capacity' counts them in a copy of the cluster's state, with ClusterRole tranche-viewer"
)


class Failure(msgspec.Struct, frozen=True):
    """The reason why a request failed."""

    error: str


class HttpError(Exception):
    """A request fails with this HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def json_handler(compute: Callable[[web.Request], Awaitable[msgspec.Struct]]) -> Handler:
    """Return a handler that responds with what `compute` returns, or with the HttpError that it raises."""

    async def handle(request: web.Request) -> web.Response:
        try:
            status, content = 200, await compute(request)
        except HttpError as error:
            status, content = error.status, Failure(str(error))
        return web.Response(status=status, body=msgspec.json.encode(content), content_type="application/json")

    return handle


def require_queue(state: ClusterState) -> None:
    """Check that pods can be reserved for a count without another decision in between.

    Raises:
        HttpError: 501, in extender mode kube-scheduler asks for decisions at any time.
    """
    if not state.has_queue:
        raise HttpError(501, _EXTENDER)


async def read_body(request: web.Request, *, most: int) -> bytes:
    """Return the body of a request.

    Raises:
        HttpError: 413, the body has more than `most` bytes.
    """
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > most:
            raise HttpError(413, f"the body is larger than the limit of {most} bytes")
    return bytes(body)
