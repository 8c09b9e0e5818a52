"""Authentication of bearer tokens by the API server (TokenReview), for the audiences of the API server itself."""

import hashlib
import time
from collections.abc import Callable
from typing import Final

import msgspec

from cluster.api import Api
from cluster.resource import TOKEN_REVIEWS
from scheduler.api.review_cache import TtlCache

_CACHE_SECONDS: Final = 30.0


class User(msgspec.Struct, frozen=True):
    """An authenticated caller, with the fields of TokenReview and SubjectAccessReview."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: User = msgspec.field(default_factory=User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class TokenReviews:
    """Asks the API server about tokens, and caches its decisions for 30 s by the hash of the token."""

    def __init__(self, api: Api, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._cache = TtlCache[User | None](_CACHE_SECONDS, clock=clock)

    async def user(self, token: str) -> User | None:
        """Return the user of a token, or None if the API server does not accept the token.

        Raises:
            ClusterError: the API server did not review the token.
        """
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
        status = msgspec.json.decode(await self._api.create(TOKEN_REVIEWS, body), type=_Review).status
        user = status.user if status.authenticated else None
        self._cache.put(key, user)
        return user
