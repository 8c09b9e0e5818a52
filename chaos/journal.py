"""Every change of one kind of object, in the order of the API server's own count.

Unlike `cluster.reflector`, which lists anew when a watch breaks, this resumes where it was cut: a state that lasted for
a millisecond while nobody was connected is seen as well. Only where etcd has forgotten it is a new list taken, and
counted as a gap.
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


class Pages(NamedTuple):
    """Who is told: of one change, of one end, of a whole list."""

    set: Callable[[dict[str, Any]], None]
    drop: Callable[[dict[str, Any]], None]
    replace: Callable[[list[dict[str, Any]]], None]


class Journal:
    """The changes of one kind.

    Attributes:
        synced: set once the first list is told.
        gaps: how often something may have been missed.
    """

    def __init__(self, api: Api, resource: Resource, pages: Pages, *, namespace: str = "") -> None:
        """Follow `resource`, in all namespaces unless one is named, and tell `pages`."""
        self._api = api
        self._path = resource.path(namespace=namespace)
        self._pages = pages
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
        answer = msgspec.json.decode(await self._api.request("GET", self._path))
        self._pages.replace(answer["items"])
        self._version = answer["metadata"]["resourceVersion"]
        self.synced.set()

    async def _watch(self) -> None:
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        async with self._api.open("GET", self._path, params=params, timeout=_SILENCE_SECONDS) as answer:
            if answer.status >= 400:
                raise from_answer(request=f"GET {self._path}", status=answer.status, body=await answer.read())
            pending = bytearray()
            async for chunk in answer.content.iter_any():
                pending += chunk
                *lines, pending = pending.split(b"\n")
                for line in filter(None, lines):
                    self._take(line)

    def _take(self, line: bytes | bytearray) -> None:
        event = msgspec.json.decode(line)
        found = event["object"]
        match event["type"]:
            case "ERROR":
                raise from_watch(msgspec.json.encode(found), request=f"watch of {self._path}")
            case "ADDED" | "MODIFIED":
                self._pages.set(found)
            case "DELETED":
                self._pages.drop(found)
            case _:
                pass  # a bookmark
        self._version = found["metadata"]["resourceVersion"]
