"""Access to the API for one namespace: callers need a bearer token of a user with rights in that namespace."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aiohttp import web

from cluster.errors import ClusterError
from scheduler.api.access_reviews import AccessReviews, Verb
from scheduler.api.namespaced.paths import TOKEN_HEADER
from scheduler.api.responses import HttpError
from scheduler.api.token_reviews import TokenReviews, User

log = logging.getLogger(__name__)

_BEARER: Final = "Bearer "
_MOST: Final = 64
_MOST_OF_ONE: Final = 4
_BUSY: Final = "too many requests are in progress; try again in a second"


class NamespaceGate:
    """Authenticates and authorises callers, and limits their concurrent requests.

    At most 64 requests, and at most 4 of one user, so that no user can exclude the others.
    """

    def __init__(self, tokens: TokenReviews, access: AccessReviews) -> None:
        self._tokens = tokens
        self._access = access
        self._under_way = 0
        self._by_user: Counter[str] = Counter()

    @asynccontextmanager
    async def identified(self, request: web.Request) -> AsyncIterator[User]:
        """Admit a caller, who is returned, while the block runs; the block has to check what the user may do.

        Raises:
            HttpError: 401, the token is missing or not accepted; 429, too many requests are in progress; 503, the API
                server could not be asked.
        """
        if self._under_way >= _MOST:
            raise HttpError(429, _BUSY)
        self._under_way += 1
        try:
            user = await self._user(request)
            if self._by_user[user.username] >= _MOST_OF_ONE:
                raise HttpError(429, _BUSY)
            self._by_user[user.username] += 1
            try:
                yield user
            finally:
                self._by_user[user.username] -= 1
                self._by_user += Counter()  # forgets users without requests
        finally:
            self._under_way -= 1

    @asynccontextmanager
    async def admitted(
        self, request: web.Request, *, verb: Verb, namespace: str, subresource: str = ""
    ) -> AsyncIterator[None]:
        """Admit a caller with a right while the block runs.

        Raises:
            HttpError: as `identified` does; 403, the user may not `verb` pods, or this `subresource` of pods, in
                `namespace`, or in all of them if it is empty.
        """
        async with self.identified(request) as user:
            with reviewing():
                allowed = await self._access.allows(user, verb=verb, namespace=namespace, subresource=subresource)
            if not allowed:
                raise HttpError(403, _denial(user, verb=verb, namespace=namespace, subresource=subresource))
            yield

    async def _user(self, request: web.Request) -> User:
        with reviewing():
            user = await self._tokens.user(bearer_token(request))
        if user is None:
            raise HttpError(401, "the API server does not accept the bearer token; log in again")
        return user


@contextmanager
def reviewing() -> Iterator[None]:
    """Turn a failed review by the API server into an error response.

    Raises:
        HttpError: 503.
    """
    try:
        yield
    except ClusterError as error:
        log.warning("a caller could not be reviewed: %s", error)
        raise HttpError(503, "the API server could not be asked about the caller; try again") from None


def _denial(user: User, *, verb: Verb, namespace: str, subresource: str) -> str:
    if not namespace:
        what = f"pods/{subresource}" if subresource else "pods"
        return f"{user.username} cannot {verb} {what} in all namespaces; ask an administrator of the cluster"
    return (
        f"{user.username} cannot {verb} pods in namespace {namespace}; ask an administrator of the namespace"
        f" for a role that allows it ({'edit' if verb in ('create', 'patch') else 'view'} does)"
    )


def bearer_token(request: web.Request) -> str:
    """Return the bearer token, preferably from X-Tranche-Token: the API server's proxy removes Authorization.

    Raises:
        HttpError: 401, the request has none.
    """
    token = request.headers.get(TOKEN_HEADER, "")
    header = request.headers.get("Authorization", "")
    if not token and header.startswith(_BEARER):
        token = header.removeprefix(_BEARER)
    if not token:
        raise HttpError(401, f"a bearer token is needed, in the header {TOKEN_HEADER} or Authorization")
    return token
