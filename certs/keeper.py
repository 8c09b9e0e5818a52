"""One of many that keep Secret and caBundle as they shall be: every replica, and who runs `python -m certs`.

Two orders make it safe for any number of them to be at it at once, and for each to die or to be paused anywhere:

- The configuration is read before the Secret, and written only if it has not changed since. So a caBundle is never
  made from a Secret that is older than the caBundle it replaces, and no authority that signs ever falls out of it.
- An authority signs only after the caller himself has seen one unchanged caBundle hold it for the settle time. API
  servers watch the configuration, so that is how long they have to hear of it; clocks of machines are not compared.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection
from datetime import datetime

import msgspec
from cryptography import x509

from allocation.names import SYSTEM_NAMESPACE
from certs import authorities, authority, ca_bundle
from certs.authorities import Authorities
from certs.authority import SECRET, Stored
from certs.ca_bundle import Published
from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError

_TURNS = 12
_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Kept(msgspec.Struct, frozen=True):
    """How things stand after a turn in which there was nothing left to do.

    Attributes:
        authorities: of the Secret.
        published: of the configuration.
        wrote: what was written on the way, for logs.
    """

    authorities: Authorities
    published: Published
    wrote: tuple[str, ...]


class Keeper:
    """Takes every step that can be taken now, and remembers since when the caBundle stands unchanged."""

    def __init__(
        self,
        api: Api,
        *,
        configuration: str,
        settle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._configuration = configuration
        self._settle_seconds = settle_seconds
        self._clock = clock
        self._seen: Published | None = None
        self._since = 0.0

    async def signing(self, *, now: datetime) -> Authorities:
        """Answer who signs, making it where nobody does; nothing is published yet.

        Raises:
            BrokenAuthorityError: there is one that cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        try:
            believed = (await ca_bundle.read(self._api, configuration=self._configuration)).certificates
        except NotFoundError:
            believed = frozenset()
        for turn in range(_TURNS):
            try:
                return (await self._stored(believed, now)).authorities
            except (ConflictError, NotFoundError):
                await _give_way(turn)
        raise _restless()

    async def tick(
        self, *, now: datetime, serving: x509.Certificate | None = None, replacing: x509.Certificate | None = None
    ) -> Kept:
        """Take steps until none is left; see `certs.authorities.next_step` for `serving` and `replacing`.

        Raises:
            NotFoundError: the configuration does not exist; apply the manifests.
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        wrote: list[str] = []
        for turn in range(_TURNS):
            published = await ca_bundle.read(self._api, configuration=self._configuration)
            self._observe(published)
            try:
                stored = await self._stored(published.certificates, now)
                step = authorities.next_step(
                    stored.authorities, now=now, serving=serving, replacing=replacing, has_settled=self.has_settled
                )
                if step is not None:
                    await authority.replace(self._api, stored, step)
                    wrote.append(f"Secret {SECRET}")
                elif any(each != stored.authorities.bundle for each in published.bundles.values()):
                    await ca_bundle.write(
                        self._api, published, bundle=stored.authorities.bundle, configuration=self._configuration
                    )
                    wrote.append(f"caBundle of {self._configuration}")
                else:
                    return Kept(stored.authorities, published, tuple(wrote))
            except (ConflictError, NotFoundError):
                await _give_way(turn)
        raise _restless()

    def has_settled(self, certificate: x509.Certificate) -> bool:
        """Whether every API server believes `certificate`, as far as one can know."""
        return (
            self._seen is not None
            and certificate in self._seen.certificates
            and self._clock() - self._since >= self._settle_seconds
        )

    async def _stored(self, believed: Collection[x509.Certificate], now: datetime) -> Stored:
        try:
            return await authority.read(self._api, now=now)
        except NotFoundError:
            await authority.create(self._api, authorities.first(believed=believed, now=now))
            return await authority.read(self._api, now=now)

    def _observe(self, published: Published) -> None:
        if self._seen is None or self._seen.revision != published.revision:
            self._since = self._clock()
        self._seen = published


async def _give_way(turn: int) -> None:
    await asyncio.sleep(min(_PAUSE * 2**turn, _LONGEST_PAUSE) * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter


def _restless() -> ClusterError:
    return ClusterError(
        f"Secret {SYSTEM_NAMESPACE}/{SECRET} and the caBundle change faster than they can be put right: something else"
        f" writes them; find out who with kubectl -n {SYSTEM_NAMESPACE} get secret {SECRET} --watch and kubectl get"
        " mutatingwebhookconfigurations --watch"
    )
