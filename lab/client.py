"""A client of the lab's API server, over kept connections: what starting a kubectl for each request costs too much for.

Kinds have the names that kubectl takes: `pods`, `gpuclaim`, `events.events.k8s.io`. kubectl itself runs where a person
would run it, and where it is what is tested (`lab/kubectl.py`).
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from lab.connection import Connection, Object, RefusedError
from lab.errors import LabError
from lab.kinds import DEFAULT_NAMESPACE, Kinds
from lab.wait import READY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from lab.layout import Layout

FIELD_MANAGER = "tranche-lab"
_WATCH_S = 30.0
_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

Objects = list[Object]
T = TypeVar("T")


class Client:
    """The verbs of the API, as one identity.

    Args:
        connection: the identity's connections.
    """

    def __init__(self, connection: Connection) -> None:
        """Connect with the first request."""
        self._connection = connection
        self._kinds = Kinds(connection)
        self.request = connection.request

    def path(self, kind: str, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or its subresource."""
        return self._kinds.find(kind).path(name, namespace=namespace, subresource=subresource)

    # ------------------------------------------------------------ reading

    def get(self, kind: str, name: str, *, namespace: str = "") -> Object:
        """Return an object.

        Raises:
            RefusedError: it does not exist, or the identity may not read it.
        """
        return self.request("GET", self.path(kind, name, namespace=namespace))

    def find(self, kind: str, name: str, *, namespace: str = "") -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.get(kind, name, namespace=namespace)
        except RefusedError as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Objects:
        """Return the objects of a namespace, or of all, that the selectors match."""
        items: Objects = self._list(kind, namespace, labels, fields)["items"]
        return items

    def until(
        self,
        probe: Callable[[Mapping[str, Object]], T | None],
        kind: str,
        *,
        what: str,
        timeout_s: float = READY_S,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> T:
        """Watch objects until `probe` returns a true value of them, and return this value.

        Args:
            probe: called with the objects by name (`namespace/name` over all namespaces), at first and at each change.
            kind: what to watch.
            what: the name of the condition, for the error message.
            timeout_s: the deadline in seconds.
            namespace: where to watch; empty for all.
            labels: a label selector.
            fields: a field selector.

        Raises:
            LabError: the deadline passed; the message has what was there.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            listed = self._list(kind, namespace, labels, fields)
            seen = {_key(each, namespace): each for each in listed["items"]}
            if value := probe(seen):
                return value
            for change in self._changes(kind, listed, namespace, labels, fields, deadline=deadline):
                _update(seen, change, namespace)
                if value := probe(seen):
                    return value
            if time.monotonic() >= deadline:
                raise LabError(
                    what,
                    why=f"timed out after {timeout_s:g} s; there were {len(seen)} {kind}: {json.dumps(seen)[:2000]}",
                    remedy="read the logs of the lab",
                )

    def until_deleted(self, namespace: str, *, timeout_s: float = READY_S) -> None:
        """Wait until a namespace that is terminating is gone; until then nothing can be created in it."""

        def is_usable(namespaces: Mapping[str, Object]) -> bool:
            return namespace not in namespaces or namespaces[namespace]["status"].get("phase") != "Terminating"

        fields = f"metadata.name={namespace}"
        self.until(is_usable, "namespaces", what=f"the end of {namespace}", timeout_s=timeout_s, fields=fields)

    def until_established(self, *names: str, timeout_s: float = READY_S) -> None:
        """Wait until the API server serves the kinds of these CustomResourceDefinitions."""

        def are_established(definitions: Mapping[str, Object]) -> bool:
            return all(name in definitions and _is_established(definitions[name]) for name in names)

        self.until(are_established, "crd", what=f"established {', '.join(names)}", timeout_s=timeout_s)

    # ------------------------------------------------------------ writing

    def create(self, *objects: Object, namespace: str = "", dry_run: bool = False) -> Objects:
        """Create objects, in `namespace` unless they name their own; return them as the API server has them."""
        return [
            self.request(
                "POST",
                self._path_of(each, namespace, is_new=True),
                body=each,
                fieldManager=FIELD_MANAGER,
                fieldValidation="Strict",
                dryRun="All" if dry_run else "",
            )
            for each in objects
        ]

    def apply(self, *objects: Object, namespace: str = "", subresource: str = "", dry_run: bool = False) -> Objects:
        """Create or change objects, or a subresource, by server-side apply; return them as the API server has them."""
        return [
            self.request(
                "PATCH",
                self._path_of(each, namespace, subresource=subresource),
                body=each,
                content_type="application/apply-patch+yaml",
                fieldManager=FIELD_MANAGER,
                fieldValidation="Strict",
                force="true",
                dryRun="All" if dry_run else "",
            )
            for each in objects
        ]

    def replace(self, content: Object, *, namespace: str = "", subresource: str = "") -> Object:
        """Replace an object or its subresource; with a resourceVersion, only that version of it."""
        return self.request("PUT", self._path_of(content, namespace, subresource=subresource), body=content)

    def patch(
        self,
        kind: str,
        name: str,
        patch: Object | Objects,
        *,
        namespace: str = "",
        subresource: str = "",
        by: str = "merge",
        dry_run: bool = False,
    ) -> Object:
        """Change an object by a patch of type `merge`, `strategic` or `json`; return it."""
        return self.request(
            "PATCH",
            self.path(kind, name, namespace=namespace, subresource=subresource),
            body=patch,
            content_type=_PATCHES[by],
            fieldManager=FIELD_MANAGER,
            fieldValidation="Strict",
            dryRun="All" if dry_run else "",
        )

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "",
        grace_s: int | None = None,
        propagation: str = "Background",
        missing_ok: bool = False,
        wait: bool = True,
        timeout_s: float = READY_S,
    ) -> None:
        """Delete an object, and wait until it is gone; with `wait=False`, until it is being deleted."""
        try:
            path = self.path(kind, name, namespace=namespace)
            before = self.get(kind, name, namespace=namespace) if wait else None
            self.request("DELETE", path, **_deletion(grace_s, propagation))
        except RefusedError as error:
            if error.status != 404 or not missing_ok:
                raise
            return
        if before is not None:
            gone = (before["metadata"]["uid"],)
            self._until_gone(gone, kind, namespace, timeout_s=timeout_s, fields=f"metadata.name={name}")

    def delete_all(
        self,
        kind: str,
        *,
        namespace: str = "",
        labels: str = "",
        grace_s: int | None = None,
        propagation: str = "Background",
        wait: bool = True,
        timeout_s: float = READY_S,
    ) -> None:
        """Delete the objects of a namespace that the selector matches, and wait until they are gone."""
        uids = [each["metadata"]["uid"] for each in self.list(kind, namespace=namespace, labels=labels)]
        path = self.path(kind, namespace=namespace)
        self.request("DELETE", path, labelSelector=labels, **_deletion(grace_s, propagation))
        if wait:
            self._until_gone(uids, kind, namespace, timeout_s=timeout_s, labels=labels)

    # ------------------------------------------------------------ parts of requests

    def _path_of(self, content: Object, namespace: str, *, is_new: bool = False, subresource: str = "") -> str:
        """Return the URL path of an object by its manifest, or of its collection if it `is_new`."""
        metadata, (group, _, version) = content["metadata"], content["apiVersion"].rpartition("/")
        kind = f"{content['kind']}.{version}.{group}" if group else content["kind"]
        own = metadata.get("namespace") or namespace or DEFAULT_NAMESPACE
        return self.path(kind, "" if is_new else metadata["name"], namespace=own, subresource=subresource)

    def _list(self, kind: str, namespace: str, labels: str, fields: str) -> Object:
        path = self.path(kind, namespace=namespace)
        return self.request("GET", path, labelSelector=labels, fieldSelector=fields)

    def _changes(
        self, kind: str, listed: Object, namespace: str, labels: str, fields: str, *, deadline: float
    ) -> Iterator[Object]:
        """Yield the changes after a list, until the watch ends or the deadline has passed."""
        seconds = max(1, round(min(deadline - time.monotonic(), _WATCH_S)))
        query = {"labelSelector": labels, "fieldSelector": fields, "timeoutSeconds": str(seconds)}
        version = listed["metadata"]["resourceVersion"]
        changes = self._connection.stream(
            self.path(kind, namespace=namespace), watch="true", resourceVersion=version, **query
        )
        for change in changes:
            if change.get("type") not in ("ADDED", "MODIFIED", "DELETED") or time.monotonic() >= deadline:
                return
            yield change

    def _until_gone(
        self, uids: Collection[str], kind: str, namespace: str, *, timeout_s: float, labels: str = "", fields: str = ""
    ) -> None:
        def is_gone(objects: Mapping[str, Object]) -> bool:
            return not any(each["metadata"]["uid"] in uids for each in objects.values())

        what = f"the end of {kind}"
        self.until(is_gone, kind, what=what, namespace=namespace, timeout_s=timeout_s, labels=labels, fields=fields)


_clients: dict[tuple[object, ...], Client] = {}
_lock = threading.Lock()


def client(layout: Layout, *, kubeconfig: Path | None = None, user: str = "", groups: tuple[str, ...] = ()) -> Client:
    """Return the client of an identity, by default the administrator's; it is kept as long as its kubeconfig."""
    path = kubeconfig or layout.kubeconfig
    try:
        written = path.stat().st_mtime_ns
    except FileNotFoundError:
        raise LabError(f"kubeconfig {path}", why="no lab is running here", remedy="run `make up`") from None
    with _lock:
        key = (path, written, user, groups)
        if key not in _clients:
            _clients[key] = Client(Connection(path, user=user, groups=groups))
        return _clients[key]


def _deletion(grace_s: int | None, propagation: str) -> dict[str, str]:
    return {"propagationPolicy": propagation, "gracePeriodSeconds": "" if grace_s is None else str(grace_s)}


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()  # null at first
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def _key(content: Object, namespace: str) -> str:
    metadata = content["metadata"]
    own: str = metadata["name"]
    return own if namespace or "namespace" not in metadata else f"{metadata['namespace']}/{own}"


def _update(seen: dict[str, Object], change: Object, namespace: str) -> None:
    content = change["object"]
    if change["type"] == "DELETED":
        seen.pop(_key(content, namespace), None)
    else:
        seen[_key(content, namespace)] = content
