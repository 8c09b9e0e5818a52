"""The responses of the API: a struct in JSON, or an error status with a message."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

NOT_DECIDING: Final = "this replica does not decide: it does not lead, or has not read the cluster yet; ask the leader"


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
