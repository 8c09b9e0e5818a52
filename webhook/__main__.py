"""`python -m webhook`: the admission webhook as a process of its own."""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime

from certs.authorities import Authorities
from certs.authority import BrokenAuthorityError
from certs.keeper import Keeper
from certs.leaf import ServerNames, UnusableLeafError
from certs.source import IssuedSource
from certs.upkeep import Upkeep
from cluster import configuration
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.connection import connect
from cluster.errors import ClusterError
from cluster.reflector import Reflector
from cluster.resource import RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.routes import Health
from webhook.server import serving
from webhook.settings import WebhookSettings

log = logging.getLogger("webhook")

_BACKOFF = (0.2, 10.0)


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit code 1 says that it could not start, with the reason on standard error."""
    told = configuration.load(
        None,
        section="webhook",
        settings=WebhookSettings,
        prog="python -m webhook",
        description="Admission of GPU pods: routing, defaults, environment by reference.",
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(_run(told))
    except (BrokenAuthorityError, UnusableLeafError, ClusterError, OSError, ValueError) as error:
        sys.exit(f"python -m webhook: {error}")


async def _run(told: Configuration[WebhookSettings]) -> None:
    settings, health, metrics, quotas = told.own, Health(), Metrics(), NamespaceQuotas()
    admission = Admission(allocation=told.allocation, settings=settings, metrics=metrics, quotas=quotas.hards)
    names = ServerNames(dns_names=settings.dns_names, ip_addresses=settings.ip_addresses)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with connect(kubeconfig=told.cluster.kubeconfig, context=told.cluster.context) as connection:
        api = Api(connection)
        keeper = Keeper(
            api,
            configuration=settings.webhook_configuration,
            settle_seconds=settings.certificates.settle_seconds,
        )
        authorities = await _authorities(keeper, stop)
        if authorities is None:
            return
        source = IssuedSource(authorities.signing, names=names, now=datetime.now(UTC))
        _measure(metrics, source)
        async with serving(
            admission=admission, health=health, metrics=metrics, source=source, settings=settings
        ) as ports:
            log.info("listening on port %d as %s", ports.reviews, ", ".join(names.all()))
            # Nobody waits for the quotas: a pod that is admitted without them waits for its cards.
            watching = Reflector(api, RESOURCE_QUOTAS, ResourceQuota, on_set=quotas.set, on_delete=quotas.drop)
            upkeep = _keep(Upkeep(keeper, source), health, poll_seconds=settings.certificates.poll_seconds)
            await _until(stop, upkeep, watching.run())
            health.ready = False
            log.info("draining for %g s", settings.drain_seconds)
            await asyncio.sleep(settings.drain_seconds)
    log.info("ended")


async def _until(stop: asyncio.Event, *works: Coroutine[None, None, None]) -> None:
    """Let `works` run until `stop` is set; a defect that ends one earlier ends the process with it."""
    tasks = [*map(asyncio.create_task, works), asyncio.ensure_future(stop.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


def _measure(metrics: Metrics, source: IssuedSource) -> None:
    """Let the metrics ask how long leaf and authority have left."""
    expiry = metrics.certificate_expiry
    expiry.labels("leaf").set_function(lambda: _seconds_until(source.leaf.ends_at))
    expiry.labels("authority").set_function(lambda: _seconds_until(source.leaf.authority.not_valid_after_utc))


def _seconds_until(end: datetime) -> float:
    return (end - datetime.now(UTC)).total_seconds()


async def _authorities(keeper: Keeper, stop: asyncio.Event) -> Authorities | None:
    """Answer the authorities as soon as the API server gives them, None where the process is to end before."""
    pause = _BACKOFF[0]
    while not stop.is_set():
        try:
            return await keeper.signing(now=datetime.now(UTC))
        except ClusterError as error:
            log.warning("certificate authority: %s; again in %.1f s", error, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
        pause = min(pause * 2, _BACKOFF[1])
    return None


async def _keep(upkeep: Upkeep, health: Health, *, poll_seconds: float) -> None:
    """Publish the authorities, say ready, then keep leaf, Secret and caBundle as they shall be, until cancelled.

    What fails is tried again: the certificate in service stays good for days.
    """
    pause = _BACKOFF[0]
    while True:
        before = upkeep.source.leaf
        try:
            kept = await upkeep.once(now=datetime.now(UTC))
        except (BrokenAuthorityError, UnusableLeafError, ClusterError) as error:
            log.warning("certificates: %s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, poll_seconds)
            continue
        for what in kept.wrote:
            log.info("%s written", what)
        if upkeep.source.leaf is not before:
            log.info("new certificate, until %s", upkeep.source.leaf.ends_at.isoformat())
        if not health.ready:
            log.info("ready")
        health.ready = True
        pause = _BACKOFF[0]
        await asyncio.sleep(poll_seconds)


if __name__ == "__main__":
    main()
