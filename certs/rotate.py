"""A rotation that a person asked for, followed until it is done."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from allocation.names import SYSTEM_NAMESPACE
from certs import authority, probe
from certs.authorities import Authorities
from certs.authority import SECRET
from certs.keeper import Keeper, Kept
from certs.settings import RotateSettings
from cluster.api import Api
from cluster.errors import ConflictError, UnreachableError

_SHOWN_DIGITS = 16


class RotationError(Exception):
    """The new authority's certificates are not in use; says how far it came and what to look at."""


async def rotate(api: Api, *, settings: RotateSettings, report: Callable[[str], None]) -> None:
    """Replace the authority that signs now; `report` is told each step in one line.

    Every step may as well be taken by a replica, or have been taken by one before; a rotation that is under way is
    followed to its end. Whatever happens to us, the replicas complete what was begun.

    Raises:
        RotationError: it was not done in time, or what was asked for makes no sense.
        BrokenAuthorityError: the Secret cannot be used.
        ClusterError: the API server refused.
    """
    try:
        for address in settings.probe:
            probe.split(address)
    except ValueError as error:
        raise RotationError(f"probe: {error}; write for example 10.0.0.7:8443") from None
    if settings.drop_old and not settings.probe:
        raise RotationError(
            "drop_old without probe: a replica that still shows an old certificate would fail; name every replica"
        )
    following = _Rotation(api, settings, report)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            await following.run()
    except TimeoutError:
        raise RotationError(
            f"not done within {settings.timeout_seconds:g} s: {following.obstacle}; the webhook goes on with what was"
            " begun, and another run of this command follows it"
        ) from None


class _Rotation:
    def __init__(self, api: Api, settings: RotateSettings, report: Callable[[str], None]) -> None:
        self._api = api
        self._settings = settings
        self._report = report
        self._keeper = Keeper(api, configuration=settings.webhook_configuration, settle_seconds=settings.settle_seconds)
        self.obstacle = "the API server has not answered"

    async def run(self) -> None:
        old = await self._begin()
        new = await self._promoted(old)
        for address in self._settings.probe:
            await self._shown(address, new)
        if self._settings.drop_old:
            await self._drop()
        elif not self._settings.probe:
            self._report("done: every replica shows a certificate of it once it has looked; --probe waits for that")

    async def _begin(self) -> x509.Certificate:
        """Answer the authority that is to be replaced."""
        while True:
            try:
                found = await self._keeper.signing(now=_now())
            except UnreachableError as error:
                await self._wait(str(error))
                continue
            old = found.signing.certificate
            self._report(f"{_spoken(old)} signs, until {old.not_valid_after_utc:%Y-%m-%d}")
            if found.announced is not None:
                self._report("a rotation is under way already: following it")
            return old

    async def _promoted(self, old: x509.Certificate) -> x509.Certificate:
        """Wait until another authority signs, and answer it."""
        announced: x509.Certificate | None = None
        while True:
            kept = await self._tick(replacing=old)
            signing, coming = kept.authorities.signing.certificate, kept.authorities.announced
            if signing != old:
                self._report(f"{_spoken(signing)} signs; {_farewell(kept.authorities, old)}")
                return signing
            if coming is not None and coming.certificate != announced:
                announced = coming.certificate
                self._report(f"{_spoken(announced)} announced in Secret {SYSTEM_NAMESPACE}/{SECRET}")
                self._report(
                    f"caBundle of {self._settings.webhook_configuration} has old and new; waiting"
                    f" {self._settings.settle_seconds:g} s for every API server to see it"
                )
            await self._wait(
                f"caBundle of MutatingWebhookConfiguration {self._settings.webhook_configuration} has not stood"
                f" unchanged for {self._settings.settle_seconds:g} s"
            )

    async def _shown(self, address: str, new: x509.Certificate) -> None:
        while objection := await probe.objection(address, authority=new):
            await self._wait(objection)
            await self._tick()
        self._report(f"{address} shows a certificate of it")

    async def _drop(self) -> None:
        while True:
            stored = await authority.read(self._api, now=_now())
            left = Authorities(stored.authorities.signing, stored.authorities.announced)
            try:
                await authority.replace(self._api, stored, left)
            except ConflictError:
                await self._wait("somebody else keeps changing the Secret")
                continue
            break
        kept = await self._tick()
        self._report(f"old authorities dropped: caBundle has {len(kept.authorities.certificates)}")

    async def _tick(self, *, replacing: x509.Certificate | None = None) -> Kept:
        while True:
            try:
                return await self._keeper.tick(now=_now(), replacing=replacing)
            except UnreachableError as error:
                await self._wait(str(error))

    async def _wait(self, obstacle: str) -> None:
        self.obstacle = obstacle
        await asyncio.sleep(self._settings.poll_seconds)


def _now() -> datetime:
    return datetime.now(UTC)


def _spoken(certificate: x509.Certificate) -> str:
    return f"authority {certificate.fingerprint(hashes.SHA256()).hex()[:_SHOWN_DIGITS]}"


def _farewell(current: Authorities, old: x509.Certificate) -> str:
    until = next((each.until for each in current.retired if each.certificate == old), None)
    return f"{_spoken(old)} is believed until {until:%Y-%m-%d %H:%M} UTC" if until else f"{_spoken(old)} is gone"
