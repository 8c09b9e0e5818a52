"""A local copy of one kind of object, kept up to date by list and watch.

Lists are paged, and watches use bookmarks. After a 410 or a lost connection the informer lists again, and reports the
differences from its copy as changes, including deletions. It also lists regularly, in case a watch has lost an event.
A watch on which nothing arrives for too long, not even a bookmark, counts as dead.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from cluster.api import Api
from cluster.backoff import Backoff
from cluster.errors import ApiError, ClusterError, GoneError, NotFoundError, UnreachableError, from_answer, from_watch
from cluster.metadata import ListMeta, ObjectMeta
from cluster.resource import Resource

log = logging.getLogger(__name__)

_SMALLEST_PAGE, _FIRST_PAGE, _LARGEST_PAGE = 4, 100, 500
_PAGE_BYTES = 2 * 1024 * 1024
"""The intended size of a page: decoding it blocks the event loop for some 10 ms."""
_AT_ONCE = 256
"""Objects of a list that are applied before the event loop may run anything else."""
_WATCH_SECONDS = 300
_SILENCE_SECONDS = 90.0  # the API server sends a bookmark about once a minute
_RELIST_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE, _JITTER = 0.2, 10.0, (0.8, 1.2)
_UNAVAILABLE_SECONDS = 15.0
_FORBIDDEN, _NOT_FOUND = 403, 404

SURVIVED: Final = (ClusterError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that a server or a proxy can cause; the informer lists again after them."""


class HasMeta(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the object."""


O = TypeVar("O", bound=HasMeta)  # noqa: E741 -- O for object


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ObjectMeta


class Informer(Generic[O]):
    """The objects of one kind, by namespace and name.

    Attributes:
        synced: set once the first list is complete.
        problem: why it is not complete yet; empty if nothing has failed, or once it is complete.
        unavailable: why an optional kind is not watched: the API server does not serve it, or forbids it. Empty if it
            is watched.
    """

    unavailable: Literal["", "absent", "forbidden"]

    def __init__(
        self,
        api: Api,
        resource: Resource,
        kind: type[O],
        *,
        on_upsert: Callable[[O, O | None], None] | None = None,
        on_delete: Callable[[O], None] | None = None,
        namespace: str = "",
        selectors: Mapping[str, str] | None = None,
        relist_seconds: float = _RELIST_SECONDS,
        silence_seconds: float = _SILENCE_SECONDS,
        is_optional: bool = False,
    ) -> None:
        """Watch `resource`, decoded as `kind`, in `namespace`, or in all namespaces if it is empty.

        Where a kind that `is_optional` is absent or forbidden, the informer is complete without an object, and asks
        again every quarter of a minute.

        `on_upsert` is called with an object and its previous state, `on_delete` with the last known state; both must
        return at once and must not raise.
        """
        self._api = api
        self._resource = resource
        self._path = resource.path(namespace=namespace)
        self._on_upsert = [on_upsert] if on_upsert is not None else []
        self._on_delete = [on_delete] if on_delete is not None else []
        self._selectors = dict(selectors or {})
        self._relist_seconds = relist_seconds
        self._silence_seconds = silence_seconds
        self._is_optional = is_optional
        self._objects: dict[tuple[str, str], O] = {}
        self._page = msgspec.json.Decoder(_page_type(kind))
        self._object = msgspec.json.Decoder(kind)
        self._event = msgspec.json.Decoder(_WatchEvent)
        self._last_received = time.monotonic()
        self.synced = asyncio.Event()
        self.problem = ""
        self.unavailable = ""

    def add_handlers(self, *, on_upsert: Callable[[O, O | None], None], on_delete: Callable[[O], None]) -> None:
        """Call these, too, after those that are there already; for handlers that need the informer to be built."""
        self._on_upsert.append(on_upsert)
        self._on_delete.append(on_delete)

    @property
    def plural(self) -> str:
        """The plural name of the kind."""
        return self._resource.plural

    @property
    def silent_seconds(self) -> float:
        """The time since the API server last sent an event, a bookmark, or a page of a list."""
        return time.monotonic() - self._last_received

    def get(self, name: str, namespace: str = "") -> O | None:
        """Return an object, or None if it does not exist."""
        return self._objects.get((namespace, name))

    def add_if_new(self, item: O) -> None:
        """Add a separately read object, if it is new; the next list removes it if it was deleted meanwhile."""
        known = self.get(item.metadata.name, item.metadata.namespace)
        if known is None or known.metadata.uid != item.metadata.uid:
            self._set(item)

    def __iter__(self) -> Iterator[O]:
        """Iterate over the present objects."""
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        with self._api.traffic.following(self):
            await self._list_and_watch()

    async def _list_and_watch(self) -> None:
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=_JITTER)
        reason = "first"
        while True:
            try:
                self._api.traffic.listed(self._resource.plural, reason)
                version = await self._list()
                backoff.reset()
                reason = "regular"
                await self._watch_from(version)
            except GoneError:
                reason = "gone"
                log.info("%s: the resourceVersion is too old to watch from; listing again", self._resource.plural)
            except SURVIVED as error:
                reason = "lost"
                if self._is_optional and isinstance(error, ApiError) and error.status in (_FORBIDDEN, _NOT_FOUND):
                    self._go_without(error)
                    await asyncio.sleep(_UNAVAILABLE_SECONDS)
                    continue
                if not self.synced.is_set():
                    self.problem = self._explain(error)
                pause = backoff.next()
                log.warning("%s: %s; again in %.1f s", self._resource.plural, error, pause)
                await asyncio.sleep(pause)

    def _go_without(self, error: ApiError) -> None:
        """Be complete without a kind that cannot be listed, and log that once.

        Objects that are known stay: an API server that has just started forbids everything for a moment.
        """
        before, self.unavailable = self.unavailable, "absent" if error.status == _NOT_FOUND else "forbidden"
        if self.unavailable != before:
            log.info("%s of %s are not watched: %s", self._resource.plural, self._resource.api_version, error)
        self.synced.set()
        self.problem = ""

    def _explain(self, error: Exception) -> str:
        """Return what keeps the first list from being complete, and the remedy where there is one."""
        if isinstance(error, NotFoundError):
            kind = f"{self._resource.plural} of {self._resource.api_version}"
            return f"the API server does not serve {kind}: apply their CustomResourceDefinition"
        return f"{self._resource.plural}: {error}"

    # ---- list ------------------------------------------------------------------------------------------------------

    async def _list(self) -> str:
        """List the whole state and apply the differences; return the resourceVersion to watch from."""
        listed: dict[tuple[str, str], O] = {}
        limit = _FIRST_PAGE
        params = {"limit": str(limit), **self._selectors}
        while True:
            body = await self._api.request("GET", self._path, params=params)
            page = self._page.decode(body)
            self._last_received = time.monotonic()
            for item in page.items:
                key = (item.metadata.namespace, item.metadata.name)
                old = self._objects.get(key)
                if old is not None and old.metadata.resource_version == item.metadata.resource_version:
                    item = old  # noqa: PLW2901 -- unchanged objects are not held twice during the list
                listed[key] = item
            if not page.metadata.continue_:
                break
            limit = max(_SMALLEST_PAGE, min(_LARGEST_PAGE, limit * _PAGE_BYTES // max(len(body), 1)))
            params |= {"limit": str(limit), "continue": page.metadata.continue_}
        for key, known in tuple(self._objects.items()):
            new = listed.get(key)
            if new is None or new.metadata.uid != known.metadata.uid:
                self._delete(known)
        for position, item in enumerate(listed.values()):
            if position % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            self._set(item)
        self.synced.set()
        self.problem = self.unavailable = ""
        return str(page.metadata.resource_version)

    # ---- watch -----------------------------------------------------------------------------------------------------

    async def _watch_from(self, version: str) -> None:
        """Watch, with as many requests as it takes, until it is time to list again."""
        until = time.monotonic() + self._relist_seconds * random.uniform(0.8, 1.2)  # noqa: S311 -- jitter, no secret
        while time.monotonic() < until:
            version = await self._watch(version, seconds=min(_WATCH_SECONDS, max(1, int(until - time.monotonic()))))

    async def _watch(self, version: str, *, seconds: int) -> str:
        """Watch from a resourceVersion; return the one to go on from once the watch has ended, or is silent.

        A watch may be silent because nothing changes, or because the connection is dead. Either way the next watch
        continues where this one ended, and only if the API server does not begin to answer that is it out of reach.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            **self._selectors,
        }
        path, loop, is_answered = self._path, asyncio.get_running_loop(), False
        try:
            async with (
                asyncio.timeout(self._silence_seconds) as patience,
                self._api.open("GET", path, params=params, timeout=seconds + self._silence_seconds) as response,
            ):
                if response.status >= 400:
                    raise from_answer(request=f"GET {path}", status=response.status, body=await response.read())
                is_answered, pending = True, bytearray()
                self._last_received = time.monotonic()
                while True:
                    patience.reschedule(loop.time() + self._silence_seconds)
                    chunk = await response.content.readany()
                    if not chunk:
                        return version
                    self._last_received = time.monotonic()
                    pending += chunk
                    *lines, rest = pending.split(b"\n")
                    pending = bytearray(rest)
                    for line in lines:
                        if line:
                            version = self._apply(line)
                            self._api.traffic.applied(self._resource.plural, time.monotonic() - self._last_received)
        except TimeoutError:
            if not is_answered:
                raise UnreachableError(f"watch of {path}: no answer for {self._silence_seconds:g} s") from None
            return version

    def _apply(self, line: bytes | bytearray) -> str:
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
        for handle in self._on_upsert:
            handle(item, old)

    def _delete(self, item: O) -> None:
        self._objects.pop((item.metadata.namespace, item.metadata.name), None)
        for handle in self._on_delete:
            handle(item)


def _page_type(kind: type[O]) -> Any:
    """Return a struct for a page of `kind`."""
    return msgspec.defstruct(f"{kind.__name__}Page", [("metadata", ListMeta), ("items", list[kind], [])])  # type: ignore[valid-type]
