"""Access to the page where it is exposed: a reader needs a bearer token, and sees what its user may list.

The API server reviews the token, whether its user may read the URL of the page's events, which show every node and how
full its cards are, and of each namespace whether the user may list its pods; only then the page shows its objects.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from cluster.errors import ClusterError
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.namespaced.gate import bearer_token
from scheduler.api.responses import HttpError
from scheduler.api.token_reviews import TokenReviews, User
from scheduler.ui.viewer import CLUSTER, VIEWER

log = logging.getLogger(__name__)

URL: Final = "/ui/events"
"""The URL that a user needs the right to `get`, as a rule of nonResourceURLs names it."""
REVIEWS_SECONDS: Final = 60.0
"""For how long the API server's decisions are cached, so for how long a withdrawn right is still good."""
REVIEWS: Final = 8192
_VIEW_SECONDS: Final = 300.0
"""After this time the page has to show its token again."""
_MOST_OF_ONE: Final = 8
_CONCURRENT_REVIEWS: Final = 16


class ViewEndedError(ConnectionError):
    """The stream ends, and the page opens it again: its reader has to be reviewed, or could not be."""


class NamespaceViewer:
    """A reader who may see the objects of some namespaces, for five minutes."""

    def __init__(self, user: User, access: AccessReviews, *, clock: Callable[[], float]) -> None:
        self._user = user
        self._access = access
        self._clock = clock
        self._ends_at = clock() + _VIEW_SECONDS

    @property
    def name(self) -> str:
        """The user."""
        return self._user.username

    async def permitted(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return those of `namespaces` whose pods the user may list; the right for all of them is asked for first.

        Raises:
            ViewEndedError: the time is over, or the API server could not be asked.
        """
        if self._clock() > self._ends_at:
            raise ViewEndedError
        try:
            if namespaces and await self._access.allows(self._user, verb="list", namespace=""):
                return namespaces
            asked, slots = sorted(namespaces - {CLUSTER}), asyncio.Semaphore(_CONCURRENT_REVIEWS)
            allowed = await asyncio.gather(*(self._allows(each, slots) for each in asked))
        except ClusterError as error:
            log.warning("what a reader of the page may see could not be reviewed: %s", error)
            raise ViewEndedError from None
        return frozenset(each for each, is_allowed in zip(asked, allowed, strict=True) if is_allowed)

    async def _allows(self, namespace: str, slots: asyncio.Semaphore) -> bool:
        async with slots:
            return await self._access.allows(self._user, verb="list", namespace=namespace)


class PageGate:
    """Authenticates and authorises readers; each may have eight pages open."""

    def __init__(
        self, tokens: TokenReviews, access: AccessReviews, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._access = access
        self._clock = clock
        self._open = Counter[str]()

    def guarded(self, respond: Handler) -> Handler:
        """Return a handler that admits readers, and leaves its `Viewer` for the one that responds to them."""

        async def guard(request: web.Request) -> web.StreamResponse:
            try:
                user = await self._authorised(request)
            except HttpError as error:
                return web.Response(status=error.status, text=str(error))
            if self._open[user.username] >= _MOST_OF_ONE:
                return web.Response(status=429, text=f"{user.username} has {_MOST_OF_ONE} pages open; close one")
            self._open[user.username] += 1
            request[VIEWER] = NamespaceViewer(user, self._access, clock=self._clock)
            try:
                return await respond(request)
            finally:
                self._open[user.username] -= 1
                self._open += Counter()  # forgets users without pages

        return guard

    async def _authorised(self, request: web.Request) -> User:
        try:
            user = await self._tokens.user(bearer_token(request))
            if user is None:
                raise HttpError(401, "the API server does not accept the bearer token; use another one")
            allowed = await self._access.allows_url(user, URL)
        except ClusterError as error:
            log.warning("a reader of the page could not be reviewed: %s", error)
            raise HttpError(503, "the API server could not be asked about the reader; try again") from None
        if not allowed:
            raise HttpError(
                403,
                f"{user.username} cannot get {URL}; ask an administrator of the cluster for ClusterRole tranche-page",
            )
        return user
