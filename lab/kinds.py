"""The kinds that an API server has, by the names that kubectl takes for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.connection import Connection, Object

DEFAULT_NAMESPACE = "default"
_DEADLINE_S = 10.0
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Kind(NamedTuple):
    """Where the objects of a kind are: `/apis/apps/v1`, `deployments`, and whether they are in namespaces."""

    prefix: str
    plural: str
    is_namespaced: bool

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, in namespace `default` unless it is named, or of a collection."""
        where = namespace or (DEFAULT_NAMESPACE if name else "")
        parts = ["namespaces", where] if where and self.is_namespaced else []
        parts += [self.plural, *(part for part in (name, subresource) if part)]
        return self.prefix + "".join(f"/{quote(part, safe='')}" for part in parts)


class Kinds:
    """The kinds of one API server; asked for again when a name is not known."""

    def __init__(self, connection: Connection) -> None:
        """Ask with the first name."""
        self._connection = connection
        self._by_name: dict[str, Kind] = {}

    def find(self, name: str) -> Kind:
        """Return the kind with a name: `pods`, `Pod`, `gclaim`, `events.events.k8s.io`, `Deployment.v1.apps`.

        Raises:
            LabError: the API server serves no such kind; for a new one its definition is waited for some moments.
        """
        deadline = time.monotonic() + _DEADLINE_S
        while (kind := self._by_name.get(name.lower())) is None:
            if time.monotonic() > deadline:
                raise LabError(f"kind {name}", why="the API server does not have it", remedy="install its definition")
            self._by_name = dict(self._read())
        return kind

    def _read(self) -> Iterator[tuple[str, Kind]]:
        """Yield the kinds with each of their names, the core group's last: of two with one name, the last is found."""
        for root in ("/apis", "/api"):
            groups = self._connection.request("GET", root, accept=_DISCOVERY)["items"]
            for group in reversed(groups):
                group_name = group.get("metadata", {}).get("name", "")
                for version in reversed(group["versions"]):
                    for each in version.get("resources", ()):
                        yield from _names(group_name, version["version"], each)


def _names(group: str, version: str, resource: Object) -> Iterator[tuple[str, Kind]]:
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    kind = Kind(prefix, resource["resource"], resource["scope"] == "Namespaced")
    own = resource.get("responseKind", {}).get("kind", "")
    for name in {kind.plural, resource.get("singularResource", ""), own, *resource.get("shortNames", ())} - {""}:
        for suffix in ("", f".{group}", f".{version}.{group}"):
            yield f"{name}{suffix}".lower(), kind
