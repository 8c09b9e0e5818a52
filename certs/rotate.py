"""A rotation that a person asked for, followed until it is done."""

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
from certs.authority_secret import SECRET
from certs.canary import fingerprint
from certs.keeper import Keeper, Kept
from certs.settings import RotateSettings
from cluster.api import Api
from cluster.errors import NotFoundError, UnreachableError

_SHOWN_DIGITS = 16

T = TypeVar("T")


class RotationError(Exception):
    """New certificates are not in use; says how far it came and what to look at."""


async def rotate(api: Api, *, settings: RotateSettings, report: Callable[[str], None]) -> None:
    """Replace every certificate, with `ca` the authority that signs them too; `report` is told each step in one line.

    Every step may as well be taken by a replica, or have been taken by one before; a rotation that is under way is
    followed to its end. Whatever happens to us, the replicas complete what was begun.

    Raises:
        RotationError: it was not done in time, or what was asked for makes no sense.
        BrokenAuthorityError: the Secret cannot be used.
        ClusterError: the API server refused.
    """
    _check(settings)
    following = _Rotation(api, settings, report)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            await following.run()
    except TimeoutError:
        raise RotationError(
            f"not done within {settings.timeout_seconds:g} s: {following.obstacle}; the webhook goes on with what was"
            " begun, and another run of this command follows it"
        ) from None


def _check(settings: RotateSettings) -> None:
    try:
        for address in settings.probe:
            probe.split(address)
    except ValueError as error:
        raise RotationError(f"probe: {error}; write for example 10.0.0.7:8443") from None
    if settings.drop_old and not settings.probe:
        raise RotationError(
            "drop_old without probe: a replica that still shows an old certificate would fail; name every replica"
        )
    if settings.drop_old and not settings.ca:
        raise RotationError("drop_old without ca: authorities are old only once there is a new one; say ca as well")


class _Rotation:
    def __init__(self, api: Api, settings: RotateSettings, report: Callable[[str], None]) -> None:
        self._api = api
        self._settings = settings
        self._report = report
        self._keeper = Keeper(api, configuration=settings.webhook_configuration, settle_seconds=settings.settle_seconds)
        self.obstacle = "the API server has not answered"

    async def run(self) -> None:
        found = await self._begin()
        if self._settings.dry_run:
            await self._rehearse(found)
            return
        before = {address: await probe.shown(address) for address in self._settings.probe}
        await (self._promoted(found) if self._settings.ca else self._renew())
        for address in self._settings.probe:
            await self._shown(address, unlike=before[address])
        if self._settings.drop_old:
            await self._drop()
        await self._verify()

    async def _begin(self) -> Authorities:
        read = self._stored if self._settings.dry_run else lambda: self._keeper.signing(now=_now())
        found = await self._answered(read)
        old = found.signing.certificate
        self._report(f"{_spoken(old)} signs, until {old.not_valid_after_utc:%Y-%m-%d}")
        if found.announced is not None:
            self._report(f"a rotation is under way already: {_spoken(found.announced.certificate)} follows it")
        return found

    async def _rehearse(self, found: Authorities) -> None:
        """Say what a rotation would do, and take the one step of it that changes nothing."""
        if objection := await self._objection(found.shown_next):
            raise RotationError(f"a rotation would not come to its end: {objection}; nothing was changed")
        self._report("the API server reaches the webhook and believes it")
        for address in self._settings.probe:
            if await probe.shown(address) is None:
                raise RotationError(f"{address} shows no certificate; nothing was changed")
        if self._settings.ca:
            self._report(
                f"would announce another authority in Secret {SYSTEM_NAMESPACE}/{SECRET}, publish both in the caBundle"
                f" of {self._settings.webhook_configuration}, wait {self._settings.settle_seconds:g} s and for the API"
                " server to accept a certificate of it, and have it sign"
            )
        self._report("would have every replica make a new certificate")
        self._report("dry run: nothing was changed")

    async def _renew(self) -> None:
        """Have every replica make a new leaf."""
        generation = secrets.token_hex(8)
        await self._answered(
            lambda: self._keeper.change(
                lambda current: structs.replace(current, leaf_generation=generation), now=_now()
            )
        )
        self._report(
            f"asked for new certificates in Secret {SYSTEM_NAMESPACE}/{SECRET}: replicas look there all the time"
        )

    async def _promoted(self, found: Authorities) -> None:
        """Wait until another authority signs."""
        old = found.signing.certificate
        announced: x509.Certificate | None = None
        while True:
            kept = await self._tick(replacing=old)
            signing, coming = kept.authorities.signing.certificate, kept.authorities.announced
            if signing != old:
                self._report(f"{_spoken(signing)} signs; {_farewell(kept.authorities, old)}")
                return
            if coming is not None and coming.certificate != announced:
                announced = coming.certificate
                self._report(f"{_spoken(announced)} announced in Secret {SYSTEM_NAMESPACE}/{SECRET}")
                self._report(
                    f"caBundle of {self._settings.webhook_configuration} has old and new; waiting"
                    f" {self._settings.settle_seconds:g} s, and for the API server to accept a certificate of it"
                )
            await self._wait(self._keeper.objection)

    async def _shown(self, address: str, *, unlike: x509.Certificate | None) -> None:
        while True:
            signing = (await self._tick()).authorities.signing.certificate
            objection = await probe.objection(address, authority=signing, unlike=unlike)
            if not objection:
                break
            await self._wait(objection)
        self._report(f"{address} shows a new certificate of it")

    async def _drop(self) -> None:
        await self._answered(
            lambda: self._keeper.change(lambda current: structs.replace(current, retired=()), now=_now())
        )
        kept = await self._tick()
        self._report(f"old authorities dropped: caBundle has {len(kept.authorities.certificates)}")

    async def _verify(self) -> None:
        """End with an admission: the API server believes what the webhook shows."""
        while True:
            shown = (await self._tick()).authorities.shown_next
            objection = await self._objection(shown)
            if not objection:
                break
            await self._wait(objection)
        self._report(f"verified by an admission: the API server accepts certificates of {_spoken(shown)}")
        if not self._settings.probe:
            self._report("every replica shows a new one once it has looked; --probe HOST:PORT waits for that")

    async def _stored(self) -> Authorities:
        try:
            return (await authority_secret.read(self._api, now=_now())).authorities
        except NotFoundError:
            raise RotationError(
                f"there is no Secret {SYSTEM_NAMESPACE}/{SECRET}: nothing to rotate; a webhook that starts makes one"
            ) from None

    async def _tick(self, *, replacing: x509.Certificate | None = None) -> Kept:
        return await self._answered(lambda: self._keeper.tick(now=_now(), replacing=replacing))

    async def _objection(self, shown: x509.Certificate) -> str:
        return await self._answered(lambda: canary.objection(self._api, authority=shown))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the API server answers."""
        while True:
            try:
                return await ask()
            except UnreachableError as error:
                await self._wait(str(error))

    async def _wait(self, obstacle: str) -> None:
        self.obstacle = obstacle
        await asyncio.sleep(self._settings.poll_seconds)


def _now() -> datetime:
    return datetime.now(UTC)


def _spoken(certificate: x509.Certificate) -> str:
    return f"authority {fingerprint(certificate)[:_SHOWN_DIGITS]}"


def _farewell(current: Authorities, old: x509.Certificate) -> str:
    until = next((each.until for each in current.retired if each.certificate == old), None)
    return f"{_spoken(old)} is believed until {until:%Y-%m-%d %H:%M} UTC" if until else f"{_spoken(old)} is gone"
