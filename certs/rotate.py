"""A rotation on request, followed until it is complete."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from cryptography import x509
from msgspec import structs

from allocation.names import SYSTEM_NAMESPACE
from certs import authority_secret, canary, probe
from certs.authorities import Authorities
from certs.authority_reconciler import AuthorityReconciler, Reconciled
from certs.authority_secret import SECRET
from certs.settings import RotateSettings
from certs.x509 import fingerprint
from cluster.api import Api
from cluster.errors import ApiError, NotFoundError, UnreachableError

_FINGERPRINT_DIGITS = 16

T = TypeVar("T")


class RotationError(Exception):
    """The rotation is not complete; the message says how far it came and what to check."""


async def rotate(api: Api, *, settings: RotateSettings, report: Callable[[str], None]) -> None:
    """Replace every certificate, with `ca` also the authority; `report` is called with one line for each step.

    A replica may take any of the steps as well, or may have taken it before; a rotation that is in progress is followed
    to its end. If this process ends early, the replicas complete what was begun.

    Raises:
        RotationError: the rotation did not complete in time, or the settings contradict each other.
        BrokenAuthorityError: the Secret cannot be used.
        ClusterError: the API server refused.
    """
    _check(settings)
    rotation = _Rotation(api, settings, report)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            await rotation.run()
    except TimeoutError:
        raise RotationError(
            f"not complete within {settings.timeout_seconds:g} s: {rotation.waiting_for}; the webhook continues what"
            " was begun, and running this command again follows it"
        ) from None


def _check(settings: RotateSettings) -> None:
    try:
        for address in settings.probe:
            probe.parse_address(address)
    except ValueError as error:
        raise RotationError(f"probe: {error}; write for example 10.0.0.7:8443") from None
    if settings.drop_old and not settings.probe:
        raise RotationError(
            "drop_old without probe: a replica that still serves an old certificate would fail; name every replica"
        )
    if settings.drop_old and not settings.ca:
        raise RotationError("drop_old without ca: no authority becomes old unless a new one is created; set ca as well")


class _Rotation:
    def __init__(self, api: Api, settings: RotateSettings, report: Callable[[str], None]) -> None:
        self._api = api
        self._settings = settings
        self._report = report
        self._reconciler = AuthorityReconciler(
            api, configuration=settings.webhook_configuration, settle_seconds=settings.settle_seconds
        )
        self.waiting_for = "the API server has not answered"

    async def run(self) -> None:
        current = await self._begin()
        if self._settings.dry_run:
            await self._dry_run(current)
            return
        before = {address: await probe.served_certificate(address) for address in self._settings.probe}
        await (self._replace_authority(current) if self._settings.ca else self._renew_leaves())
        for address in self._settings.probe:
            await self._wait_for_replica(address, previous=before[address])
        if self._settings.drop_old:
            await self._drop_retired()
        await self._verify()

    async def _begin(self) -> Authorities:
        read = self._read_secret if self._settings.dry_run else lambda: self._reconciler.ensure_secret(now=_now())
        current = await self._until_answered(read)
        signing = current.signing.certificate
        self._report(f"{_describe(signing)} signs and is valid until {signing.not_valid_after_utc:%Y-%m-%d}")
        if current.announced is not None:
            self._report(f"a rotation is already in progress: {_describe(current.announced.certificate)} signs next")
        return current

    async def _dry_run(self, current: Authorities) -> None:
        """Report what a rotation would do, and take the one step of it that changes nothing."""
        if problem := await self._canary_problem(current.canary_authority):
            raise RotationError(f"a rotation would not complete: {problem}; nothing was changed")
        self._report("the API server reaches the webhook and trusts its certificate")
        for address in self._settings.probe:
            if await probe.served_certificate(address) is None:
                raise RotationError(f"{address} does not serve a certificate; nothing was changed")
        if self._settings.ca:
            self._report(
                f"would announce a new authority in Secret {SYSTEM_NAMESPACE}/{SECRET}, publish both in the caBundle of"
                f" {self._settings.webhook_configuration}, wait {self._settings.settle_seconds:g} s and until the API"
                " server accepts a certificate of the new authority, and then sign with it"
            )
        self._report("would have every replica issue a new certificate")
        self._report("dry run: nothing was changed")

    async def _renew_leaves(self) -> None:
        generation = secrets.token_hex(8)
        await self._update_secret(lambda current: structs.replace(current, leaf_generation=generation))
        self._report(f"requested new certificates in Secret {SYSTEM_NAMESPACE}/{SECRET}, which every replica polls")

    async def _replace_authority(self, current: Authorities) -> None:
        """Wait until another authority signs."""
        old = current.signing.certificate
        announced: x509.Certificate | None = None
        while True:
            authorities = (await self._reconcile(replacing=old)).authorities
            signing, next_signer = authorities.signing.certificate, authorities.announced
            if signing != old:
                self._report(f"{_describe(signing)} signs; {_describe_retired(authorities, old)}")
                return
            if next_signer is not None and next_signer.certificate != announced:
                announced = next_signer.certificate
                self._report(f"{_describe(announced)} is announced in Secret {SYSTEM_NAMESPACE}/{SECRET}")
                self._report(
                    f"caBundle of {self._settings.webhook_configuration} holds the old and the new authority; waiting"
                    f" {self._settings.settle_seconds:g} s and until the API server accepts a certificate of the new"
                    " one"
                )
            await self._wait(self._reconciler.pending_reason)

    async def _wait_for_replica(self, address: str, *, previous: x509.Certificate | None) -> None:
        while True:
            signing = (await self._reconcile()).authorities.signing.certificate
            problem = await probe.problem(address, authority=signing, previous=previous)
            if not problem:
                break
            await self._wait(problem)
        self._report(f"{address} serves a new certificate of it")

    async def _drop_retired(self) -> None:
        await self._update_secret(lambda current: structs.replace(current, retired=()))
        reconciled = await self._reconcile()
        self._report(
            f"old authorities are removed; authorities in the caBundle: {len(reconciled.authorities.certificates)}"
        )

    async def _verify(self) -> None:
        """Wait for an admission request in which the API server trusts the webhook's certificate."""
        while True:
            authority = (await self._reconcile()).authorities.canary_authority
            problem = await self._canary_problem(authority)
            if not problem:
                break
            await self._wait(problem)
        self._report(f"verified by an admission: the API server accepts certificates of {_describe(authority)}")
        if not self._settings.probe:
            self._report("each replica serves a new certificate after its next poll; --probe HOST:PORT waits for that")

    async def _read_secret(self) -> Authorities:
        try:
            return (await authority_secret.read(self._api, now=_now())).authorities
        except NotFoundError:
            raise RotationError(
                f"Secret {SYSTEM_NAMESPACE}/{SECRET} does not exist, so there is nothing to rotate; the webhook creates"
                " it when it starts"
            ) from None

    async def _update_secret(self, change: Callable[[Authorities], Authorities]) -> None:
        await self._until_answered(lambda: self._reconciler.update(change, now=_now()))

    async def _reconcile(self, *, replacing: x509.Certificate | None = None) -> Reconciled:
        return await self._until_answered(lambda: self._reconciler.reconcile(now=_now(), replacing=replacing))

    async def _canary_problem(self, authority: x509.Certificate) -> str:
        return await self._until_answered(lambda: canary.problem(self._api, authority=authority))

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat `call` until the API server can execute it, and return its result."""
        while True:
            try:
                return await call()
            except (UnreachableError, ApiError) as error:
                if not error.is_transient:
                    raise
                await self._wait(str(error))

    async def _wait(self, reason: str) -> None:
        self.waiting_for = reason
        await asyncio.sleep(self._settings.poll_seconds)


def _now() -> datetime:
    return datetime.now(UTC)


def _describe(certificate: x509.Certificate) -> str:
    return f"authority {fingerprint(certificate)[:_FINGERPRINT_DIGITS]}"


def _describe_retired(current: Authorities, old: x509.Certificate) -> str:
    until = next((each.until for each in current.retired if each.certificate == old), None)
    if until is None:
        return f"{_describe(old)} is removed"
    return f"{_describe(old)} stays trusted until {until:%Y-%m-%d %H:%M} UTC"
