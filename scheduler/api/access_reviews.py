"""Authorisation of callers: the API server decides what they may do with the pods of a namespace.

Each check is a SubjectAccessReview.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from cluster.api import Api
from cluster.resource import PODS, SUBJECT_ACCESS_REVIEWS
from scheduler.api.review_cache import TtlCache
from scheduler.api.token_reviews import User

Verb = Literal["get", "list", "create"]

_CACHE_SECONDS: Final = 10.0


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class AccessReviews:
    """Asks the API server about the rights of users, and caches its decisions for 10 s."""

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._cache = TtlCache[bool](_CACHE_SECONDS, clock=clock)

    async def allows(self, user: User, *, verb: Verb, namespace: str, subresource: str = "") -> bool:
        """Return whether `user` may `verb` the pods of `namespace`, or of all namespaces if it is empty.

        With a `subresource`, whether the user may do that with this of the pods.

        Raises:
            ClusterError: the API server did not review the user.
        """
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": {
                "verb": verb,
                "resource": PODS.plural,
                "subresource": subresource,
                "version": "v1",
                "namespace": namespace,
            },
        }
        key = msgspec.json.encode(spec)
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        resource = SUBJECT_ACCESS_REVIEWS
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        allowed = msgspec.json.decode(await self._api.create(resource, body), type=_Review).status.allowed
        self._cache.put(key, allowed)
        return allowed
