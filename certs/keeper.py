"""One of many that keep Secret and caBundle as they shall be: every replica, and who runs `python -m certs`.

Two orders make it safe for any number of them to be at it at once, and for each to die or to be paused anywhere:

- The configuration is read before the Secret, and written only if it has not changed since. So a caBundle is never
  made from a Secret that is older than the caBundle it replaces, and no authority that signs ever falls out of it.
- An authority signs only after the caller himself has seen one unchanged caBundle hold it for the settle time, which is
  what API servers have to hear of it, and one of them has then accepted a certificate of it in an actual admission
  (`certs.canary`). Clocks of machines are not compared.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection
from datetime import datetime

import msgspec
from cryptography import x509

from allocation.names import SYSTEM_NAMESPACE
from certs import authorities, authority_secret, ca_bundle, canary
from certs.authorities import Authorities
from certs.authority_secret import SECRET, Stored
from certs.ca_bundle import Published
from certs.settling import Settling
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
    """Takes every step that can be taken now, and remembers what API servers are known to believe.

    Attributes:
        objection: why they are not known to believe who signs next, as of the last look; empty where they do.
    """

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
        self._settling = Settling(seconds=settle_seconds, clock=clock)
        self._accepted: x509.Certificate | None = None
        self.objection = ""

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
            if self._settling.observe(published):
                self._accepted = None
            try:
                stored = await self._stored(published.certificates, now)
                coming = stored.authorities.next_signer(serving)
                if coming is not None:
                    await self._try(coming.certificate)
                step = authorities.next_step(
                    stored.authorities, now=now, serving=serving, replacing=replacing, is_believed=self.is_believed
                )
                if step is not None:
                    await authority_secret.replace(self._api, stored, step)
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

    async def change(self, change: Callable[[Authorities], Authorities], *, now: datetime) -> Authorities:
        """Write into the Secret what `change` makes of what is there, and answer it.

        Raises:
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        for turn in range(_TURNS):
            stored = await authority_secret.read(self._api, now=now)
            changed = change(stored.authorities)
            try:
                await authority_secret.replace(self._api, stored, changed)
            except ConflictError:
                await _give_way(turn)
            else:
                return changed
        raise _restless()

    def is_believed(self, certificate: x509.Certificate) -> bool:
        """Whether every API server believes `certificate`, as far as one can know."""
        return certificate == self._accepted

    async def _try(self, certificate: x509.Certificate) -> None:
        """Have an API server verify a certificate of an authority, once all of them have had time to hear of it."""
        if not self._settling.holds(certificate):
            self.objection = (
                f"caBundle of MutatingWebhookConfiguration {self._configuration} has not stood unchanged for"
                f" {self._settle_seconds:g} s"
            )
        elif certificate != self._accepted:
            self.objection = await canary.objection(self._api, authority=certificate)
            self._accepted = None if self.objection else certificate

    async def _stored(self, believed: Collection[x509.Certificate], now: datetime) -> Stored:
        try:
            return await authority_secret.read(self._api, now=now)
        except NotFoundError:
            await authority_secret.create(self._api, authorities.first(believed=believed, now=now))
            return await authority_secret.read(self._api, now=now)


async def _give_way(turn: int) -> None:
    await asyncio.sleep(min(_PAUSE * 2**turn, _LONGEST_PAUSE) * random.uniform(0.5, 1.5))  # noqa: S311 -- jitter


def _restless() -> ClusterError:
    return ClusterError(
        f"Secret {SYSTEM_NAMESPACE}/{SECRET} and the caBundle change faster than they can be put right: something else"
        f" writes them; find out who with kubectl -n {SYSTEM_NAMESPACE} get secret {SECRET} --watch and kubectl get"
        " mutatingwebhookconfigurations --watch"
    )
