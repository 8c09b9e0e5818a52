"""Reconciles the CA Secret and the caBundle. Safe to run concurrently in every replica and in the CLI.

Any number of reconcilers may run at once, and each may be killed or paused at any point, because of two rules of order:

- The configuration is read before the Secret, and written only if it has not changed since. So a caBundle is never
  computed from a Secret that is older than the caBundle it replaces, and no signing authority ever drops out of it.
- An authority signs only after this reconciler has seen one unchanged caBundle hold it for the settle time, which API
  servers need to observe it, and an API server has then accepted a certificate of it in a real admission request
  (`certs.canary`). The clocks of different machines are never compared.
"""

import asyncio
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
from certs.stability import Stability
from cluster.api import Api
from cluster.backoff import Backoff
from cluster.errors import ClusterError, ConflictError, NotFoundError

_ATTEMPTS = 12
_FIRST_PAUSE, _LONGEST_PAUSE, _JITTER = 0.05, 1.0, (0.5, 1.5)


class Reconciled(msgspec.Struct, frozen=True):
    """The state once nothing is left to do.

    Attributes:
        authorities: the content of the Secret.
        published: the content of the configuration.
        wrote: the objects that were written on the way, for logs.
    """

    authorities: Authorities
    published: Published
    wrote: tuple[str, ...]


class AuthorityReconciler:
    """Takes every step that is possible now, and remembers which authority API servers are known to trust.

    Attributes:
        pending_reason: why API servers are not known to trust the next signer, as of the last check; empty where they
            are.
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
        self._stability = Stability(seconds=settle_seconds, clock=clock)
        self._accepted: x509.Certificate | None = None
        self.pending_reason = ""

    async def ensure_secret(self, *, now: datetime) -> Authorities:
        """Return the authorities of the Secret, creating it where it does not exist; nothing is published.

        Raises:
            BrokenAuthorityError: the Secret exists but cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        try:
            trusted = (await ca_bundle.read(self._api, configuration=self._configuration)).common_certificates
        except NotFoundError:
            trusted = frozenset()
        backoff = _new_backoff()
        for _ in range(_ATTEMPTS):
            try:
                return (await self._read_or_create(trusted, now)).authorities
            except (ConflictError, NotFoundError):
                await _back_off(backoff.next())
        raise _contention_error()

    async def reconcile(
        self, *, now: datetime, serving: x509.Certificate | None = None, replacing: x509.Certificate | None = None
    ) -> Reconciled:
        """Take steps until none is left; see `certs.authorities.next_step` for `serving` and `replacing`.

        Raises:
            NotFoundError: the configuration does not exist; apply the manifests.
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        wrote: list[str] = []
        backoff = _new_backoff()
        for _ in range(_ATTEMPTS):
            pause = backoff.next()
            published = await ca_bundle.read(self._api, configuration=self._configuration)
            if self._stability.record(published):
                self._accepted = None
            try:
                stored = await self._read_or_create(published.common_certificates, now)
                next_signer = stored.authorities.next_signer(serving)
                if next_signer is not None:
                    await self._check_trust(next_signer.certificate)
                step = authorities.next_step(
                    stored.authorities, now=now, serving=serving, replacing=replacing, is_trusted=self.is_trusted
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
                    return Reconciled(stored.authorities, published, tuple(wrote))
            except (ConflictError, NotFoundError):
                await _back_off(pause)
        raise _contention_error()

    async def update(self, change: Callable[[Authorities], Authorities], *, now: datetime) -> Authorities:
        """Apply `change` to the content of the Secret, write the result and return it.

        Raises:
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        backoff = _new_backoff()
        for _ in range(_ATTEMPTS):
            stored = await authority_secret.read(self._api, now=now)
            changed = change(stored.authorities)
            try:
                await authority_secret.replace(self._api, stored, changed)
            except ConflictError:
                await _back_off(backoff.next())
            else:
                return changed
        raise _contention_error()

    def is_trusted(self, certificate: x509.Certificate) -> bool:
        """Whether every API server trusts `certificate`, as far as this can be known."""
        return certificate == self._accepted

    async def _check_trust(self, certificate: x509.Certificate) -> None:
        """Ask an API server to verify a certificate of an authority, once all have had time to observe the caBundle."""
        if not self._stability.has_held(certificate):
            self.pending_reason = (
                f"the caBundle of MutatingWebhookConfiguration {self._configuration} has not held the new authority"
                f" unchanged for {self._settle_seconds:g} s yet"
            )
        elif certificate != self._accepted:
            self.pending_reason = await canary.problem(self._api, authority=certificate)
            self._accepted = None if self.pending_reason else certificate

    async def _read_or_create(self, trusted: Collection[x509.Certificate], now: datetime) -> Stored:
        try:
            return await authority_secret.read(self._api, now=now)
        except NotFoundError:
            await authority_secret.create(self._api, authorities.initial(trusted=trusted, now=now))
            return await authority_secret.read(self._api, now=now)


def _new_backoff() -> Backoff:
    return Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, jitter=_JITTER)


async def _back_off(pause: float) -> None:
    await asyncio.sleep(pause)


def _contention_error() -> ClusterError:
    return ClusterError(
        f"Secret {SYSTEM_NAMESPACE}/{SECRET} and the caBundle keep changing while they are reconciled: something else"
        f" writes them; to find the writer, run kubectl -n {SYSTEM_NAMESPACE} get secret {SECRET} --watch and kubectl"
        " get mutatingwebhookconfigurations --watch"
    )
