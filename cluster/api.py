"""The verbs of the Kubernetes API; msgspec structs hold just the fields that a caller reads."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec

from cluster.api_observer import ApiObserver
from cluster.backoff import Backoff
from cluster.connection import Connection
from cluster.errors import TooManyRequestsError, UnreachableError, from_answer
from cluster.resource import Resource

T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_BUSY = 429
_BUSY_ATTEMPTS = 6
_FIRST_PAUSE, _LONGEST_PAUSE, _JITTER = 0.1, 10.0, (1.0, 1.2)

_encoder = msgspec.json.Encoder()


class ReadApi(Protocol):
    """The verbs that read, for what writes nothing, or only by other means."""

    async def get(self, resource: Resource, kind: type[T], *, name: str, namespace: str = "") -> T:
        """Read one object."""

    async def list(self, resource: Resource, kind: type[T], *, namespace: str = "", **selectors: str) -> list[T]:
        """Read all objects in one response."""


class Api:
    """Verbs over one connection. Every response other than a success raises a `cluster.errors.ApiError`.

    Attributes:
        traffic: observes every request, and what caches receive.
    """

    traffic = ApiObserver()

    def __init__(self, connection: Connection, *, timeout: float = 30.0, traffic: ApiObserver = traffic) -> None:
        self._connection = connection
        self._timeout = timeout
        self.traffic = traffic

    def as_user(self, token: str) -> "Api":
        """Return the verbs with the identity of a bearer token's user instead of this process's own."""
        return Api(self._connection.as_user(token), timeout=self._timeout, traffic=self.traffic)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 -- it is also the time limit of the connection
        repeat_if_busy: bool = True,
    ) -> bytes:
        """Send one request and return the body of the response.

        The server did not execute a request that it answered with 429, so the request is repeated a limited number of
        times, after the time that the server asks for. With `repeat_if_busy` False it is sent once.

        Raises:
            ApiError: the server refused the request.
            UnreachableError: no response arrived; whether the request took effect is unknown.
        """
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=_JITTER)
        attempts = _BUSY_ATTEMPTS if repeat_if_busy else 1
        for attempt in range(attempts):
            async with self.open(
                method, path, params=params, body=body, content_type=content_type, timeout=timeout
            ) as response:
                payload = await _read(response, method, path)
                if response.status < 400:
                    return payload
                if response.status != _BUSY or attempt == attempts - 1:
                    raise from_answer(request=f"{method} {path}", status=response.status, body=payload)
                pause = backoff.next(requested=_retry_after(response))
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
        content_type: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 -- see request
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield the response before its body has arrived, for watches."""
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
            ) as response:
                status = response.status
                self.traffic.answered(method, path, params or {}, status=status, seconds=time.perf_counter() - begin)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            if not status:
                self.traffic.answered(method, path, params or {}, status=0, seconds=0.0)
            raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error

    async def get(self, resource: Resource, kind: type[T], *, name: str, namespace: str = "") -> T:
        """Read one object."""
        body = await self.request("GET", resource.path(namespace=namespace, name=name))
        return msgspec.json.decode(body, type=kind)

    async def list(self, resource: Resource, kind: type[T], *, namespace: str = "", **selectors: str) -> list[T]:
        """Read all objects in one response; caches read pages, through `cluster.informer`."""

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
        """Apply fields of one object as `manager`, by server-side apply; create the object if it is missing."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        params = {"fieldManager": manager, "force": "true"}
        return await self.request("PATCH", path, params=params, body=body, content_type=APPLY_PATCH)

    async def merge(
        self, resource: Resource, body: Mapping[str, Any], *, name: str, namespace: str = "", subresource: str = ""
    ) -> bytes:
        """Merge-patch one object."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PATCH", path, body=body, content_type=MERGE_PATCH)


async def _read(response: aiohttp.ClientResponse, method: str, path: str) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnreachableError(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        return float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
