"""A local copy of one kind of object, kept equal to the API server's by list and watch.

One way for every cache of ours: the list comes in pages, the watch has bookmarks, a 410 or a lost connection leads to
a new list whose difference to what we hold is told as changes, deletions included. A list of the whole state is also
taken every now and then, for whatever a watch may have lost. A watch on which nothing arrives for too long, bookmarks
included, is taken for dead.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError, GoneError, UnreachableError, from_answer, from_watch
from cluster.metadata import ListMeta, ObjectMeta
from cluster.resource import Resource

log = logging.getLogger(__name__)

_PAGE = "500"
_WATCH_SECONDS = 300
_SILENCE_SECONDS = 90.0  # the API server sends a bookmark about once a minute
_RELIST_SECONDS = 300.0
_BACKOFF = (0.2, 10.0)

SURVIVED: Final = (ClusterError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a server, or who stands between, may send and not end us with: it is listed again."""


class HasMeta(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Answer its metadata."""


O = TypeVar("O", bound=HasMeta)  # noqa: E741 -- O for object


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ObjectMeta


class Reflector(Generic[O]):
    """The objects of one kind, by namespace and name.

    Attributes:
        synced: set once the first list is complete.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        kind: type[O],
        *,
        on_set: Callable[[O, O | None], None] | None = None,
        on_delete: Callable[[O], None] | None = None,
        namespace: str = "",
        selectors: Mapping[str, str] | None = None,
        relist_seconds: float = _RELIST_SECONDS,
        silence_seconds: float = _SILENCE_SECONDS,
    ) -> None:
        """Watch `resource`, decoded as `kind`, in `namespace`, or, where that is empty, in all of them.

        `on_set` is called with an object and its predecessor, `on_delete` with the last known state; both must
        return at once and must not raise.
        """
        self._api = api
        self._resource = resource
        self._path = resource.path(namespace=namespace)
        self._on_set = on_set
        self._on_delete = on_delete
        self._selectors = dict(selectors or {})
        self._relist_seconds = relist_seconds
        self._silence_seconds = silence_seconds
        self._objects: dict[tuple[str, str], O] = {}
        self._page = msgspec.json.Decoder(_page_type(kind))
        self._object = msgspec.json.Decoder(kind)
        self._event = msgspec.json.Decoder(_WatchEvent)
        self._heard_at = time.monotonic()
        self.synced = asyncio.Event()

    @property
    def plural(self) -> str:
        """What the objects are called."""
        return self._resource.plural

    @property
    def silent_seconds(self) -> float:
        """How long ago the API server last said anything: an event, a bookmark, or a page of a list."""
        return time.monotonic() - self._heard_at

    def get(self, name: str, namespace: str = "") -> O | None:
        """Answer an object, None where there is none."""
        return self._objects.get((namespace, name))

    def learn(self, item: O) -> None:
        """Take an object that was read by itself and is new to us; should it be gone by now, the next list tells."""
        known = self.get(item.metadata.name, item.metadata.namespace)
        if known is None or known.metadata.uid != item.metadata.uid:
            self._set(item)

    def __iter__(self) -> Iterator[O]:
        """Iterate over what is there now."""
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        """Count the objects."""
        return len(self._objects)

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        with self._api.traffic.following(self):
            await self._follow()

    async def _follow(self) -> None:
        pause, reason = _BACKOFF[0], "first"
        while True:
            try:
                self._api.traffic.listed(self._resource.plural, reason)
                version = await self._list()
                pause, reason = _BACKOFF[0], "regular"
                await self._watch_from(version)
            except GoneError:
                reason = "gone"
                log.info("%s: the watch is too old, listing again", self._resource.plural)
            except SURVIVED as error:
                reason = "lost"
                log.warning("%s: %s; again in %.1f s", self._resource.plural, error, pause)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter, no secret
                pause = min(pause * 2, _BACKOFF[1])

    # ---- list ------------------------------------------------------------------------------------------------------

    async def _list(self) -> str:
        """Take the whole state and tell its difference to ours; answer the version to watch from."""
        found: dict[tuple[str, str], O] = {}
        params = {"limit": _PAGE, **self._selectors}
        while True:
            page = self._page.decode(await self._api.request("GET", self._path, params=params))
            self._heard_at = time.monotonic()
            for item in page.items:
                key = (item.metadata.namespace, item.metadata.name)
                old = self._objects.get(key)
                if old is not None and old.metadata.resource_version == item.metadata.resource_version:
                    item = old  # noqa: PLW2901 -- what did not change is not held twice while the list goes on
                found[key] = item
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        for key, known in tuple(self._objects.items()):
            new = found.get(key)
            if new is None or new.metadata.uid != known.metadata.uid:
                self._delete(known)
        for item in found.values():
            self._set(item)
        self.synced.set()
        return str(page.metadata.resource_version)

    # ---- watch -----------------------------------------------------------------------------------------------------

    async def _watch_from(self, version: str) -> None:
        """Follow changes, over as many watches as it takes, until it is time to list again."""
        until = time.monotonic() + self._relist_seconds * random.uniform(0.8, 1.2)  # noqa: S311 -- jitter, no secret
        while time.monotonic() < until:
            version = await self._watch(version, seconds=min(_WATCH_SECONDS, max(1, int(until - time.monotonic()))))

    async def _watch(self, version: str, *, seconds: int) -> str:
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            **self._selectors,
        }
        path = self._path
        async with self._api.open("GET", path, params=params, timeout=seconds + self._silence_seconds) as answer:
            if answer.status >= 400:
                raise from_answer(request=f"GET {path}", status=answer.status, body=await answer.read())
            pending = bytearray()
            while True:
                try:
                    async with asyncio.timeout(self._silence_seconds):
                        chunk = await answer.content.readany()
                except TimeoutError:
                    raise UnreachableError(f"watch of {path}: silent for {self._silence_seconds:.0f} s") from None
                if not chunk:
                    return version
                self._heard_at = time.monotonic()
                pending += chunk
                *lines, rest = pending.split(b"\n")
                pending = bytearray(rest)
                for line in lines:
                    if line:
                        version = self._take(line)
                        self._api.traffic.applied(self._resource.plural, time.monotonic() - self._heard_at)

    def _take(self, line: bytes | bytearray) -> str:
        event = self._event.decode(line)
        if event.type == "ERROR":
            raise from_watch(bytes(event.object), request=f"watch of {self._path}")
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
        item = self._object.decode(event.object)
        if event.type == "DELETED":
            self._delete(item)
        else:
            self._set(item)
        return item.metadata.resource_version

    # ---- changes ---------------------------------------------------------------------------------------------------

    def _set(self, item: O) -> None:
        key = (item.metadata.namespace, item.metadata.name)
        old = self._objects.get(key)
        if old is not None and old.metadata.resource_version == item.metadata.resource_version:
            return
        if old is not None and old.metadata.uid != item.metadata.uid:
            self._delete(old)
            old = None
        self._objects[key] = item
        if self._on_set is not None:
            self._on_set(item, old)

    def _delete(self, item: O) -> None:
        self._objects.pop((item.metadata.namespace, item.metadata.name), None)
        if self._on_delete is not None:
            self._on_delete(item)


def _page_type(kind: type[O]) -> Any:
    """Answer the struct of a list of `kind`."""
    return msgspec.defstruct(f"{kind.__name__}Page", [("metadata", ListMeta), ("items", list[kind], [])])  # type: ignore[valid-type]
