"""An API server in memory: it keeps objects, serves lists and watches, and does what writes say.

It admits everything. What a write means is taken from Kubernetes: a Binding sets the node and adds annotations, an
Eviction begins the end of a pod, patches are merged.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from cluster.api import APPLY_PATCH, Api
from cluster.errors import ApiError, ConflictError, NotFoundError
from tests.scheduler.support.merge_patch import merged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

Object = dict[str, Any]
_NOW = "2026-01-01T00:00:00Z"


class _Watch:
    """The response to a watch: its events come through a queue."""

    status = 200

    def __init__(self, selects: Callable[[Object], bool]) -> None:
        self.content = self
        self.selects = selects
        self.events: asyncio.Queue[bytes] = asyncio.Queue()

    async def readany(self) -> bytes:
        """Return the next event."""
        return await self.events.get()


class MemoryApi(Api):
    """The API server.

    Attributes:
        requests: method and path of every write, in order.
        unlimited: the same of those that the API server would never abandon, however late they take effect.
        late: the plural names of kinds whose watches show nothing more.
        on_write: called with method and path before each write; may raise an error of the API.
        held: writes whose path has this part wait for the event.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._watches: dict[str, set[_Watch]] = {}
        self._version = itertools.count(1)
        self.requests: list[tuple[str, str]] = []
        self.unlimited: list[tuple[str, str]] = []
        self.late: set[str] = set()
        self.held: dict[str, asyncio.Event] = {}
        self.on_write: Callable[[str, str], None] = lambda _method, _path: None

    # ---- what tests do -----------------------------------------------------------------------------------------------

    def put(self, plural: str, content: Object) -> Object:
        """Create an object, or replace it."""
        metadata = content["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        before = self._objects.get(key)
        made = {**content, "metadata": {"uid": f"uid-{metadata['name']}", "creationTimestamp": _NOW, **metadata}}
        self._set(key, made, "MODIFIED" if before else "ADDED")
        return made

    def get_object(self, plural: str, name: str, namespace: str = "") -> Object:
        """Return what is stored under a name."""
        return self._objects[plural, namespace, name]

    def all(self, plural: str) -> list[Object]:
        """Return the objects of a kind."""
        return [each for (kind, _, _), each in self._objects.items() if kind == plural]

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        gone = self._objects.pop((plural, namespace, name))
        self._show(plural, "DELETED", gone)

    # ---- what the product does ---------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Serve a request."""
        await asyncio.sleep(0)
        plural, namespace, name, _ = _parse(path)
        if method == "GET":
            if name:
                return msgspec.json.encode(self._find(plural, namespace, name, path))
            items = [each for each in self.all(plural) if _selects(namespace, how.get("params") or {})(each)]
            metadata = {"resourceVersion": str(next(self._version))}
            return msgspec.json.encode({"metadata": metadata, "items": items})
        for part, released in self.held.items():
            if part in path:
                await released.wait()
        self.on_write(method, path)
        self.requests.append((method, path))
        if "timeout" not in (how.get("params") or {}):
            self.unlimited.append((method, path))
        body = msgspec.json.decode(msgspec.json.encode(how.get("body")))
        is_apply = how.get("content_type") == APPLY_PATCH
        is_rehearsal = "dryRun" in (how.get("params") or {})
        return msgspec.json.encode(self._write(method, path, body, is_apply=is_apply, is_rehearsal=is_rehearsal))

    @asynccontextmanager
    async def open(self, method: str, path: str, **how: Any) -> AsyncIterator[Any]:
        """Serve a watch, from now on: nothing changes between a list and its watch, because nothing awaits there."""
        assert method == "GET", path
        plural, namespace, _, _ = _parse(path)
        watch = _Watch(_selects(namespace, how["params"]))
        watches = self._watches.setdefault(plural, set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)

    def _write(self, method: str, path: str, body: Any, *, is_apply: bool, is_rehearsal: bool) -> Object:
        plural, namespace, name, subresource = _parse(path)
        key = (plural, namespace, name)
        if method == "POST" and not name:
            key = (plural, namespace, body["metadata"]["name"])
            if key in self._objects:
                raise ConflictError(request=path, status=409, reason="AlreadyExists", message=key[2])
            if plural == "events":
                _check_event(path, body)
            given = {"uid": f"uid-{key[2]}", "creationTimestamp": _NOW, "namespace": namespace}
            body["metadata"] = {**given, **body["metadata"]}
            return self._set(key, body, "ADDED")
        if is_apply and key not in self._objects:
            return self._set(key, body, "ADDED")
        now = self._find(plural, namespace, name, path)
        _check(method, path, body or {}, now["metadata"])
        if method == "DELETE":
            del self._objects[key]
            self._show(plural, "DELETED", now)
            return now
        if subresource == "binding":
            if now["spec"].get("nodeName"):
                raise ConflictError(request=path, status=409, reason="Conflict", message="it has a node")
            metadata = {field: body["metadata"].get(field, {}) for field in ("annotations", "labels")}
            body = {"metadata": metadata, "spec": {"nodeName": body["target"]["name"]}, "status": {"phase": "Running"}}
        elif subresource == "eviction":
            body = {"metadata": {"deletionTimestamp": _NOW}}
        elif method == "PUT":
            return self._set(key, body, "MODIFIED")
        return now if is_rehearsal else self._set(key, _counted(now, merged(now, body)), "MODIFIED")

    def _find(self, plural: str, namespace: str, name: str, path: str) -> Object:
        found = self._objects.get((plural, namespace, name))
        if found is None:
            raise NotFoundError(request=path, status=404, reason="NotFound", message=f"{plural} {name} not found")
        return found

    def _set(self, key: tuple[str, str, str], content: Object, event: str) -> Object:
        content["metadata"] = {**content["metadata"], "resourceVersion": str(next(self._version))}
        self._objects[key] = content
        self._show(key[0], event, content)
        return content

    def _show(self, plural: str, event: str, content: Object) -> None:
        if plural in self.late:
            return
        line = msgspec.json.encode({"type": event, "object": content}) + b"\n"
        for watch in self._watches.get(plural, ()):
            if watch.selects(content):
                watch.events.put_nowait(line)


def refusing(*parts: str, status: int = 403) -> Callable[[str, str], None]:
    """Return what refuses writes whose path has one of these parts."""

    def refuse(method: str, path: str) -> None:
        if any(part in path for part in parts):
            raise ApiError(request=f"{method} {path}", status=status, reason="Forbidden", message="refused by the test")

    return refuse


def _parse(path: str) -> tuple[str, str, str, str]:
    """Return plural name, namespace, name and subresource."""
    parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "")[:3]
    return plural, namespace, name, subresource


def _selects(namespace: str, params: Mapping[str, str]) -> Callable[[Object], bool]:
    wanted = dict(each.split("=", 1) for each in params.get("labelSelector", "").split(",") if "=" in each)

    def selects(content: Object) -> bool:
        metadata = content["metadata"]
        return namespace in ("", metadata.get("namespace", "")) and wanted.items() <= metadata.get("labels", {}).items()

    return selects


def _check(method: str, path: str, body: Object, now: Object) -> None:
    """Check the preconditions of a write."""
    wanted = body.get("metadata", body).get("uid") or body.get("preconditions", {}).get("uid")
    if wanted not in (None, now["uid"]):
        raise ConflictError(request=path, status=409, reason="Conflict", message="another UID")
    version = body.get("metadata", {}).get("resourceVersion")
    if method == "PATCH" and version not in (None, now["resourceVersion"]):
        raise ConflictError(request=path, status=409, reason="Conflict", message="another version")


def _check_event(path: str, body: Object) -> None:
    """Refuse an event that the API server refuses (`ValidateEventCreate` in its source)."""
    words = [body[field] for field in ("reason", "action", "reportingController", "reportingInstance")]
    is_valid = all(isinstance(each, str) and 0 < len(each) <= 128 for each in words)
    if not is_valid or body["type"] not in ("Normal", "Warning") or len(body["note"]) > 1024:
        raise ApiError(request=path, status=422, reason="Invalid", message=f"event {body}")


def _counted(now: Object, changed: Object) -> Object:
    """Return a changed object with its next generation, if it has generations and its spec is another."""
    if "generation" in now["metadata"] and changed.get("spec") != now.get("spec"):
        changed["metadata"] = {**changed["metadata"], "generation": now["metadata"]["generation"] + 1}
    return changed
