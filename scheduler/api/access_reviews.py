"""Authorisation of callers: the API server decides what they may do with the pods of a namespace, or with a URL.

Each check is a SubjectAccessReview.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from cluster.api import Api
from cluster.resource import PODS, SUBJECT_ACCESS_REVIEWS, Resource
from scheduler.api.review_cache import TtlCache
from scheduler.api.token_reviews import User

Verb = Literal["get", "list", "create", "patch"]

_CACHE_SECONDS: Final = 10.0
_CACHED: Final = 1024


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class AccessReviews:
    """Asks the API server about the rights of users, and caches its decisions."""

    def __init__(
        self,
        api: Api,
        *,
        clock: Callable[[], float] = time.monotonic,
        seconds: float = _CACHE_SECONDS,
        most: int = _CACHED,
    ) -> None:
        """Keep a decision for `seconds`, and at most this number of them."""
        self._api = api
        self._cache = TtlCache[bool](seconds, clock=clock, most=most)

    async def allows(self, user: User, *, verb: Verb, namespace: str, subresource: str = "") -> bool:
        """Return whether `user` may `verb` the pods of `namespace`, or of all namespaces if it is empty.

        With a `subresource`, whether the user may do that with this of the pods.

        Raises:
            ClusterError: the API server did not review the user.
        """
        attributes = {
            "verb": verb,
            "resource": PODS.plural,
            "subresource": subresource,
            "version": "v1",
            "namespace": namespace,
        }
        return await self._allows(user, {"resourceAttributes": attributes})

    async def allows_object(self, user: User, *, verb: Verb, resource: Resource, name: str) -> bool:
        """Return whether `user` may `verb` this object of a kind without namespaces.

        Raises:
            ClusterError: the API server did not review the user.
        """
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "version": resource.version,
            "name": name,
        }
        return await self._allows(user, {"resourceAttributes": attributes})

    async def allows_url(self, user: User, path: str) -> bool:
        """Return whether `user` may read a URL that is not one of an object of the API.

        Raises:
            ClusterError: the API server did not review the user.
        """
        return await self._allows(user, {"nonResourceAttributes": {"verb": "get", "path": path}})

    async def _allows(self, user: User, attributes: dict[str, dict[str, str]]) -> bool:
        of_user = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        spec = {**of_user, **attributes}
        key = msgspec.json.encode(spec)
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        resource = SUBJECT_ACCESS_REVIEWS
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        allowed = msgspec.json.decode(await self._api.create(resource, body), type=_Review).status.allowed
        self._cache.put(key, allowed)
        return allowed
