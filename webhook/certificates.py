"""The certificates of a webhook process: selects their source by the settings, and runs the reconciler."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from certs.authority_reconciler import AuthorityReconciler
from certs.authority_secret import BrokenAuthorityError
from certs.leaf import ServerNames, UnusableLeafError
from certs.mounted import MountedSource
from certs.mounted_reconciler import MountedReconciler
from certs.replica_reconciler import IssuedReconciler, ReplicaReconciler
from certs.source import IssuedSource, LeafSource
from cluster.api import Api
from cluster.backoff import Backoff
from cluster.errors import ClusterError
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import MUTATING_WEBHOOKS
from webhook.metrics import Metrics
from webhook.routes import Health
from webhook.settings import WebhookSettings

log = logging.getLogger("webhook")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0


class _Configuration(msgspec.Struct):
    metadata: ObjectMeta


async def start(api: Api, settings: WebhookSettings, stop: asyncio.Event) -> ReplicaReconciler | None:
    """Return the reconciler of a source that has a certificate, or None where `stop` is set before.

    Temporary failures are retried: the API server is unreachable, or files are missing or unusable.

    Raises:
        BrokenAuthorityError: the Secret cannot be used.
    """
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    while not stop.is_set():
        pause = backoff.next()
        try:
            return await _new_reconciler(api, settings)
        except (ClusterError, UnusableLeafError) as error:
            log.warning("certificates: %s; retrying in %.1f s", error, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
    return None


def export_expiry(metrics: Metrics, source: LeafSource) -> None:
    """Export the seconds until leaf and authority expire; the metrics read `source` at each scrape."""
    expiry = metrics.certificate_expiry
    expiry.labels("leaf").set_function(lambda: _seconds_until(source.leaf.ends_at))
    expiry.labels("authority").set_function(lambda: _seconds_until(source.leaf.authority.not_valid_after_utc))


class ConfigurationWatch:
    """Wakes the reconciler as soon as the MutatingWebhookConfiguration changes."""

    def __init__(self, api: Api, *, configuration: str) -> None:
        self._changed = asyncio.Event()
        self._informer = Informer(
            api,
            MUTATING_WEBHOOKS,
            _Configuration,
            on_upsert=lambda _new, _old: self._changed.set(),
            on_delete=lambda _old: self._changed.set(),
            selectors={"fieldSelector": f"metadata.name={configuration}"},
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    async def changed(self, *, seconds: float) -> None:
        """Wait until the configuration has changed since the last call, or until `seconds` have passed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()


async def run(
    reconciler: ReplicaReconciler,
    health: Health,
    watch: ConfigurationWatch,
    *,
    poll_seconds: float,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Reconcile until cancelled, and report ready while API servers trust the certificate in service.

    Failures are retried: the certificate in service stays valid for days. A process whose certificate is about to
    expire reports not ready, so that API servers call a replica with a better one.
    """
    backoff, is_published = Backoff(first=_FIRST_PAUSE, longest=poll_seconds), False
    while True:
        pause = backoff.next()
        before = reconciler.source.leaf
        try:
            wrote = await reconciler.reconcile(now=clock())
            is_published, is_settled = True, not wrote
            for name in wrote:
                log.info("%s written", name)
        except (BrokenAuthorityError, UnusableLeafError, ClusterError) as error:
            log.warning("certificates: %s; retrying in %.1f s", error, pause)
            is_settled = False
        if reconciler.source.leaf is not before:
            log.info("new certificate, valid until %s", reconciler.source.leaf.ends_at.isoformat())
        _set_ready(health, ready=is_published and reconciler.source.leaf.is_usable(clock()))
        if is_settled:
            backoff.reset()
            await watch.changed(seconds=poll_seconds)
        else:  # also after a write: two writers that undo each other's changes must slow down
            await asyncio.sleep(pause)


async def _new_reconciler(api: Api, settings: WebhookSettings) -> ReplicaReconciler:
    certificates = settings.certificates
    names = ServerNames(dns_names=settings.dns_names, ip_addresses=settings.ip_addresses)
    now = datetime.now(UTC)
    if certificates.source == "self":
        authority_reconciler = AuthorityReconciler(
            api, configuration=settings.webhook_configuration, settle_seconds=certificates.settle_seconds
        )
        authorities = await authority_reconciler.ensure_secret(now=now)
        source = IssuedSource(
            authorities.signing,
            names=names,
            canary=certificates.canary_name,
            generation=authorities.leaf_generation,
            now=now,
        )
        return IssuedReconciler(authority_reconciler, source)
    return MountedReconciler(
        api,
        MountedSource(Path(certificates.folder), names=names, now=now),
        names=names,
        configuration=settings.webhook_configuration,
        publishes=certificates.source == "files",
        settle_seconds=certificates.settle_seconds,
    )


def _set_ready(health: Health, *, ready: bool) -> None:
    if ready != health.ready:
        log.info("ready" if ready else "not ready")
    health.ready = ready


def _seconds_until(end: datetime) -> float:
    return (end - datetime.now(UTC)).total_seconds()
