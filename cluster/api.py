"""The verbs of the Kubernetes API, typed by msgspec structs that hold just the fields a caller reads."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec

from cluster.connection import Connection
from cluster.errors import TooManyRequestsError, UnreachableError, from_answer
from cluster.resource import Resource
from cluster.traffic import Traffic

T = TypeVar("T")

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_JSON = "application/json"
_BUSY = 429
_BUSY_ATTEMPTS = 6
_LONGEST_RETRY_AFTER = 10.0

_encoder = msgspec.json.Encoder()


class Api:
    """Verbs over one connection. Every answer that is no success raises a `cluster.errors.ApiError`.

    Attributes:
        traffic: is told of every request, and by caches of what they hear.
    """

    traffic = Traffic()

    def __init__(self, connection: Connection, *, timeout: float = 30.0, traffic: Traffic = traffic) -> None:
        self._connection = connection
        self._timeout = timeout
        self.traffic = traffic

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        timeout: float | None = None,  # noqa: ASYNC109 -- it is the server's time limit too, not only ours
    ) -> bytes:
        """Send one request and answer the body.

        A 429 was not carried out, so it is repeated after the time the server asks for, a bounded number of times.

        Raises:
            ApiError: the server refused.
            UnreachableError: no answer came; whether the request took effect is unknown.
        """
        for attempt in range(_BUSY_ATTEMPTS):
            async with self.open(
                method, path, params=params, body=body, content_type=content_type, timeout=timeout
            ) as answer:
                payload = await _read(answer, method, path)
                if answer.status < 400:
                    return payload
                if answer.status != _BUSY or attempt == _BUSY_ATTEMPTS - 1:
                    raise from_answer(request=f"{method} {path}", status=answer.status, body=payload)
                pause = _retry_after(answer, attempt)
            await asyncio.sleep(pause)
        raise TooManyRequestsError(request=f"{method} {path}", status=_BUSY, reason="TooManyRequests", message="")

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        timeout: float | None = None,  # noqa: ASYNC109 -- see request
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and answer the response while its body is still arriving; for watches."""
        headers = await self._connection.headers()
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = body if isinstance(body, bytes) else _encoder.encode(body)
        begin, status = time.perf_counter(), 0
        try:
            async with self._connection.session.request(
                method,
                self._connection.server + path,
                params=params,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout or self._timeout),
            ) as answer:
                status = answer.status
                self.traffic.answered(method, path, params or {}, status=status, seconds=time.perf_counter() - begin)
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            if not status:
                self.traffic.answered(method, path, params or {}, status=0, seconds=0.0)
            raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error

    async def get(self, resource: Resource, kind: type[T], *, name: str, namespace: str = "") -> T:
        """Read one object."""
        body = await self.request("GET", resource.path(namespace=namespace, name=name))
        return msgspec.json.decode(body, type=kind)

    async def list(self, resource: Resource, kind: type[T], *, namespace: str = "", **selectors: str) -> list[T]:
        """Read all objects, at once; caches page through `cluster.reflector` instead."""

        class Items(msgspec.Struct):
            items: list[kind] = []  # type: ignore[valid-type]

        body = await self.request("GET", resource.path(namespace=namespace), params=selectors)
        return msgspec.json.decode(body, type=Items).items

    async def create(self, resource: Resource, body: object, *, namespace: str = "") -> bytes:
        """Create one object."""
        return await self.request("POST", resource.path(namespace=namespace), body=body)

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        name: str,
        manager: str,
        namespace: str = "",
        subresource: str = "",
    ) -> bytes:
        """Apply our fields of one object on the server's side, creating it where it is missing."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        params = {"fieldManager": manager, "force": "true"}
        return await self.request("PATCH", path, params=params, body=body, content_type=APPLY_PATCH)

    async def merge(
        self, resource: Resource, body: Mapping[str, Any], *, name: str, namespace: str = "", subresource: str = ""
    ) -> bytes:
        """Merge-patch one object."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PATCH", path, body=body, content_type=MERGE_PATCH)


async def _read(answer: aiohttp.ClientResponse, method: str, path: str) -> bytes:
    try:
        return await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error


def _retry_after(answer: aiohttp.ClientResponse, attempt: int) -> float:
    try:
        asked = float(answer.headers.get("Retry-After", ""))
    except ValueError:
        asked = 0.1 * 2**attempt
    return min(asked, _LONGEST_RETRY_AFTER) * random.uniform(1.0, 1.2)  # noqa: S311 -- jitter, no secret
