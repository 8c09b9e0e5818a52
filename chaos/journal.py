"""Every change of one kind of object, in the order of resource versions.

Unlike `cluster.informer`, which lists again when a watch breaks, a journal resumes where the watch was cut: it observes
even a state that lasted for a millisecond while no connection was open. It lists again only when etcd has compacted the
version, and counts that as a gap.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError, GoneError, from_answer, from_watch
from cluster.resource import Resource

_WATCH_SECONDS = 60
_SILENCE_SECONDS = 70.0
_PAUSE_SECONDS = 0.2


class Handlers(NamedTuple):
    """Callbacks for an added or modified object, for a deleted object, and for a whole list."""

    set: Callable[[dict[str, Any]], None]
    drop: Callable[[dict[str, Any]], None]
    replace: Callable[[list[dict[str, Any]]], None]


class Journal:
    """Follows the changes of one kind of object.

    Attributes:
        synced: set once the first list was handled.
        gaps: how often changes may have been missed.
    """

    def __init__(self, api: Api, resource: Resource, handlers: Handlers, *, namespace: str = "") -> None:
        """Follow `resource`, in all namespaces unless one is named, and call `handlers`."""
        self._api = api
        self._path = resource.path(namespace=namespace)
        self._handlers = handlers
        self._version = ""
        self.synced = asyncio.Event()
        self.gaps = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except GoneError:
                self._version, self.gaps = "", self.gaps + 1
            except (ClusterError, msgspec.DecodeError):
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _list(self) -> None:
        listed = msgspec.json.decode(await self._api.request("GET", self._path))
        self._handlers.replace(listed["items"])
        self._version = listed["metadata"]["resourceVersion"]
        self.synced.set()

    async def _watch(self) -> None:
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        async with self._api.open("GET", self._path, params=params, timeout=_SILENCE_SECONDS) as response:
            if response.status >= 400:
                raise from_answer(request=f"GET {self._path}", status=response.status, body=await response.read())
            pending = bytearray()
            async for chunk in response.content.iter_any():
                pending += chunk
                *lines, pending = pending.split(b"\n")
                for line in filter(None, lines):
                    self._take(line)

    def _take(self, line: bytes | bytearray) -> None:
        event = msgspec.json.decode(line)
        content = event["object"]
        match event["type"]:
            case "ERROR":
                raise from_watch(msgspec.json.encode(content), request=f"watch of {self._path}")
            case "ADDED" | "MODIFIED":
                self._handlers.set(content)
            case "DELETED":
                self._handlers.drop(content)
            case _:
                pass  # a bookmark
        self._version = content["metadata"]["resourceVersion"]
