"""`python -m webhook`: the admission webhook as its own process."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial

from certs.authority_secret import BrokenAuthorityError
from certs.leaf import UnusableLeafError
from cluster import configuration, process
from cluster.api import Api
from cluster.api_metrics import TrafficMetrics
from cluster.configuration import Configuration
from cluster.connect import connect
from cluster.errors import ClusterError
from cluster.http import exposition
from webhook import certificates
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics
from webhook.routes import Health
from webhook.server import serving
from webhook.settings import WebhookSettings

log = logging.getLogger("webhook")


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit with code 1 and the reason on standard error if it cannot start."""
    loaded = configuration.load(
        None,
        section="webhook",
        settings=WebhookSettings,
        prog="python -m webhook",
        description="Admission webhook for GPU pods: routes them to the scheduler, completes their resources, and sets"
        " their environment.",
    )
    failures = (BrokenAuthorityError, UnusableLeafError, ClusterError, OSError, ValueError)
    process.run(partial(_run, loaded), log=loaded.log, failures=failures)


async def _run(loaded: Configuration[WebhookSettings], stop: asyncio.Event) -> None:
    settings, health, metrics = loaded.own, Health(), Metrics()
    exposition.register_process(metrics.registry)
    cluster = loaded.cluster
    async with connect(program="tranche-webhook", kubeconfig=cluster.kubeconfig, context=cluster.context) as connection:
        api = Api(connection, traffic=TrafficMetrics(metrics.registry))
        admitting = ClusterAdmission(api, allocation=loaded.allocation, settings=settings, metrics=metrics)
        reconciler = await certificates.start(api, settings, stop)
        if reconciler is None:
            return
        certificates.export_expiry(metrics, reconciler.source)
        async with serving(
            admission=admitting.admission, health=health, metrics=metrics, source=reconciler.source, settings=settings
        ) as ports:
            process.settle()
            log.info("listening on port %d", ports.reviews)
            watch = certificates.ConfigurationWatch(api, configuration=settings.webhook_configuration)
            poll_seconds = settings.certificates.poll_seconds
            reconciling = certificates.run(reconciler, health, watch, poll_seconds=poll_seconds)
            copies = [informer.run() for informer in admitting.informers]
            await process.until(stop, _ready_with(admitting, reconciling), watch.run(), *copies)
            health.ready = False
            log.info("draining for %g s", settings.drain_seconds)
            await asyncio.sleep(settings.drain_seconds)
    log.info("stopped")


async def _ready_with(cluster: ClusterAdmission, reconciling: Coroutine[None, None, None]) -> None:
    """Run `reconciling`, which reports ready, once admission knows what it must."""
    await cluster.listed()
    await reconciling


if __name__ == "__main__":
    main()
