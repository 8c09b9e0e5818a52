"""Access to the API for one namespace: callers need a bearer token of a user with rights in that namespace."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    async def admitted(
        self, request: web.Request, *, verb: Verb, namespace: str, subresource: str = ""
    ) -> AsyncIterator[None]:
        """Admit the caller while the block runs.

        Raises:
            HttpError: 401, the token is missing or not accepted; 403, its user may not `verb` pods, or this
                `subresource` of pods, in `namespace`, or in all of them if it is empty; 429, too many requests are in
                progress; 503, the API server could not be asked.
        """
        if self._under_way >= _MOST:
            raise HttpError(429, _BUSY)
        self._under_way += 1
        try:
            user = await self._authorised(request, verb=verb, namespace=namespace, subresource=subresource)
            if self._by_user[user.username] >= _MOST_OF_ONE:
                raise HttpError(429, _BUSY)
            self._by_user[user.username] += 1
            try:
                yield
            finally:
                self._by_user[user.username] -= 1
                self._by_user += Counter()  # forgets users without requests
        finally:
            self._under_way -= 1

    async def _authorised(self, request: web.Request, *, verb: Verb, namespace: str, subresource: str) -> User:
        try:
            user = await self._tokens.user(_token(request))
            if user is None:
                raise HttpError(401, "the API server does not accept the bearer token; log in again")
            allowed = await self._access.allows(user, verb=verb, namespace=namespace, subresource=subresource)
        except ClusterError as error:
            log.warning("a caller could not be reviewed: %s", error)
            raise HttpError(503, "the API server could not be asked about the caller; try again") from None
        if not allowed and not namespace:
            raise HttpError(
                403,
                f"{user.username} cannot {verb} pods/{subresource} in all namespaces; ask an administrator of the"
                " cluster",
            )
        if not allowed:
            raise HttpError(
                403,
                f"{user.username} cannot {verb} pods in namespace {namespace}; ask an administrator of the namespace"
                f" for a role that allows it ({'edit' if verb == 'create' else 'view'} does)",
            )
        return user


def _token(request: web.Request) -> str:
    """Return the bearer token, preferably from X-Tranche-Token: the API server's proxy removes Authorization."""
    token = request.headers.get(TOKEN_HEADER, "")
    header = request.headers.get("Authorization", "")
    if not token and header.startswith(_BEARER):
        token = header.removeprefix(_BEARER)
    if not token:
        raise HttpError(401, f"a bearer token is needed, in the header {TOKEN_HEADER} or Authorization")
    return token
