"""The certificates of a webhook process: where they come from, by its settings, and the loop that keeps them."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from certs.authority_secret import BrokenAuthorityError
from certs.keeper import Keeper
from certs.leaf import ServerNames, UnusableLeafError
from certs.mounted import MountedSource
from certs.mounted_upkeep import MountedUpkeep
from certs.source import IssuedSource, LeafSource
from certs.upkeep import IssuedUpkeep, Upkeep
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.metadata import ObjectMeta
from cluster.reflector import Reflector
from cluster.resource import MUTATING_WEBHOOKS
from webhook.metrics import Metrics
from webhook.routes import Health
from webhook.settings import WebhookSettings

log = logging.getLogger("webhook")

_BACKOFF = (0.05, 10.0)


class _Configuration(msgspec.Struct):
    metadata: ObjectMeta


async def begin(api: Api, settings: WebhookSettings, stop: asyncio.Event) -> Upkeep | None:
    """Answer the upkeep of a source that has a certificate to show, None where the process is to end before.

    What may come right by itself is waited for: an API server that is away, files that are not there yet.

    Raises:
        BrokenAuthorityError: the Secret cannot be used.
    """
    pause = _BACKOFF[0]
    while not stop.is_set():
        try:
            return await _upkeep(api, settings)
        except (ClusterError, UnusableLeafError) as error:
            log.warning("certificates: %s; again in %.1f s", error, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
        pause = min(pause * 2, _BACKOFF[1])
    return None


def measure(metrics: Metrics, source: LeafSource) -> None:
    """Let the metrics ask how long leaf and authority have left."""
    expiry = metrics.certificate_expiry
    expiry.labels("leaf").set_function(lambda: _seconds_until(source.leaf.ends_at))
    expiry.labels("authority").set_function(lambda: _seconds_until(source.leaf.authority.not_valid_after_utc))


class Watch:
    """Wakes the upkeep as soon as somebody changes the configuration."""

    def __init__(self, api: Api, *, configuration: str) -> None:
        self._changed = asyncio.Event()
        self._reflector = Reflector(
            api,
            MUTATING_WEBHOOKS,
            _Configuration,
            on_set=lambda _new, _old: self._changed.set(),
            on_delete=lambda _old: self._changed.set(),
            selectors={"fieldSelector": f"metadata.name={configuration}"},
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    async def changed(self, *, seconds: float) -> None:
        """Wait for a change since the last call, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()


async def keep(
    upkeep: Upkeep,
    health: Health,
    watch: Watch,
    *,
    poll_seconds: float,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Keep certificates as they shall be, and say ready while what is shown is believed, until cancelled.

    What fails is tried again: the certificate in service stays good for days. One that is about to end makes the
    process not ready: callers go to a replica that has a better one.
    """
    pause, published = min(_BACKOFF[0], poll_seconds), False
    while True:
        before = upkeep.source.leaf
        try:
            wrote = await upkeep.once(now=clock())
            published, calm = True, not wrote
            for what in wrote:
                log.info("%s written", what)
        except (BrokenAuthorityError, UnusableLeafError, ClusterError) as error:
            log.warning("certificates: %s; again in %.1f s", error, pause)
            calm = False
        if upkeep.source.leaf is not before:
            log.info("new certificate, until %s", upkeep.source.leaf.ends_at.isoformat())
        _say(health, ready=published and upkeep.source.leaf.lasts(clock()))
        if calm:
            pause = min(_BACKOFF[0], poll_seconds)
            await watch.changed(seconds=poll_seconds)
        else:  # also after a write: two that undo each other's at every change would never end
            await asyncio.sleep(pause)
            pause = min(pause * 2, poll_seconds)


async def _upkeep(api: Api, settings: WebhookSettings) -> Upkeep:
    told = settings.certificates
    names = ServerNames(dns_names=settings.dns_names, ip_addresses=settings.ip_addresses)
    now = datetime.now(UTC)
    if told.source == "self":
        keeper = Keeper(api, configuration=settings.webhook_configuration, settle_seconds=told.settle_seconds)
        current = await keeper.signing(now=now)
        source = IssuedSource(
            current.signing, names=names, canary=told.canary_name, generation=current.leaf_generation, now=now
        )
        return IssuedUpkeep(keeper, source)
    return MountedUpkeep(
        api,
        MountedSource(Path(told.folder), names=names, now=now),
        names=names,
        configuration=settings.webhook_configuration,
        publishes=told.source == "files",
        settle_seconds=told.settle_seconds,
    )


def _say(health: Health, *, ready: bool) -> None:
    if ready != health.ready:
        log.info("ready" if ready else "not ready")
    health.ready = ready


def _seconds_until(end: datetime) -> float:
    return (end - datetime.now(UTC)).total_seconds()
