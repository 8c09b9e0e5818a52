"""What one leader writes, and what keeps that from taking effect once another replica leads.

What is created carries the leader's token, by which the API server refuses it from then on (scheduler/fence.py). Other
writes cannot carry it; they name the UID of their object, and its version where that matters. The API server abandons
each of them after a time for which the next leader waits, so that its informers read what this one wrote.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from allocation import names
from cluster.api import JSON, MERGE_PATCH, Api, ReadApi
from cluster.metadata import ObjectMeta
from cluster.resource import Resource

T = TypeVar("T")

_AT_ONCE: Final = 16


class FencedApi:
    """The API server, for the writes of one leader. Whether one that failed is repeated is its caller's decision.

    Attributes:
        api: for what is read; it has no verb that writes.
        token: the leader's.
        timeout_seconds: the time after which the API server abandons a write.
    """

    def __init__(self, api: Api, *, token: str, timeout_seconds: float, is_trusted: Callable[[], bool]) -> None:
        """Write as long as `is_trusted`, with `token`."""
        self.api: ReadApi = api
        self._api = api
        self.token = token
        self.timeout_seconds = timeout_seconds
        self._is_trusted = is_trusted

    @property
    def is_trusted(self) -> bool:
        """Whether this replica is trusted to lead, and may begin to write something.

        What it has begun it may complete without trust: a leader that hands over waits for its Bindings.
        """
        return self._is_trusted()

    async def create(
        self, path: str, body: Mapping[str, Any], *, repeat_if_busy: bool = True, dry_run: bool = False
    ) -> None:
        """Create an object, or a subresource such as a Binding, with the leader's token.

        A `dry_run` passes admission, with the fence and all other policies, and stores nothing.
        """
        await self.write("POST", path, with_token(body, self.token), repeat_if_busy=repeat_if_busy, dry_run=dry_run)

    async def delete(self, resource: Resource, meta: ObjectMeta, *, unchanged: bool = False) -> None:
        """Delete the object with this UID, and with `unchanged` only if it still has this version."""
        version = {"resourceVersion": meta.resource_version} if unchanged else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid, **version}}
        await self.write("DELETE", resource.path(namespace=meta.namespace, name=meta.name), body)

    async def patch_status(
        self, resource: Resource, meta: ObjectMeta, status: Mapping[str, Any], *, content_type: str = MERGE_PATCH
    ) -> None:
        """Patch the status of the object with this UID."""
        path = resource.path(namespace=meta.namespace, name=meta.name, subresource="status")
        await self.write("PATCH", path, {"metadata": {"uid": meta.uid}, "status": status}, content_type=content_type)

    async def write(
        self,
        method: str,
        path: str,
        body: object,
        *,
        content_type: str = JSON,
        repeat_if_busy: bool = True,
        dry_run: bool = False,
    ) -> bytes:
        """Send a write whose body says which object it is meant for; return the object as it is then."""
        return await self._api.request(
            *(method, path),
            params={"timeout": f"{self.timeout_seconds:g}s", **({"dryRun": "All"} if dry_run else {})},
            body=body,
            content_type=content_type,
            timeout=self.timeout_seconds + 2,  # longer than the server's: its response is not missed by a moment
            repeat_if_busy=repeat_if_busy,
        )

    async def write_each(self, write: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
        """Call `write` for each item, some at a time; items whose turn comes without trust are left out."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(item: T) -> None:
            async with slots:
                if self.is_trusted:
                    await write(item)

        await asyncio.gather(*map(one, items))


def with_token(body: Mapping[str, Any], token: str) -> dict[str, Any]:
    """Return an object with a leader's token, and with the label by which the policies of the fence select it."""
    meta = body["metadata"]
    labels = {**meta.get("labels", {}), names.FENCED_LABEL: "true"}
    annotations = {**meta.get("annotations", {}), names.LEADER: token}
    return {**body, "metadata": {**meta, "labels": labels, "annotations": annotations}}
