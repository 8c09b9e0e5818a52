"""`python -m webhook`: the admission webhook as a process of its own."""

import asyncio
import logging
from functools import partial

from certs.authority_secret import BrokenAuthorityError
from certs.leaf import UnusableLeafError
from cluster import configuration, process, process_metrics
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.connection import connect
from cluster.errors import ClusterError
from cluster.reflector import Reflector
from cluster.resource import RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from cluster.traffic_metrics import TrafficMetrics
from webhook import certificates
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.routes import Health
from webhook.server import serving
from webhook.settings import WebhookSettings

log = logging.getLogger("webhook")


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit code 1 says that it could not start, with the reason on standard error."""
    told = configuration.load(
        None,
        section="webhook",
        settings=WebhookSettings,
        prog="python -m webhook",
        description="Admission of GPU pods: routing, defaults, environment by reference.",
    )
    failures = (BrokenAuthorityError, UnusableLeafError, ClusterError, OSError, ValueError)
    process.run(partial(_run, told), log=told.log, failures=failures)


async def _run(told: Configuration[WebhookSettings], stop: asyncio.Event) -> None:
    settings, health, metrics, quotas = told.own, Health(), Metrics(), NamespaceQuotas()
    admission = Admission(allocation=told.allocation, settings=settings, metrics=metrics, quotas=quotas.hards)
    process_metrics.register(metrics.registry)
    async with connect(kubeconfig=told.cluster.kubeconfig, context=told.cluster.context) as connection:
        api = Api(connection, traffic=TrafficMetrics(metrics.registry))
        upkeep = await certificates.begin(api, settings, stop)
        if upkeep is None:
            return
        certificates.measure(metrics, upkeep.source)
        async with serving(
            admission=admission, health=health, metrics=metrics, source=upkeep.source, settings=settings
        ) as ports:
            process.settle()
            log.info("listening on port %d", ports.reviews)
            watch = certificates.Watch(api, configuration=settings.webhook_configuration)
            poll_seconds = settings.certificates.poll_seconds
            keeping = certificates.keep(upkeep, health, watch, poll_seconds=poll_seconds)
            # Nobody waits for the quotas: a pod that is admitted without them waits for its cards.
            watching = Reflector(api, RESOURCE_QUOTAS, ResourceQuota, on_set=quotas.set, on_delete=quotas.drop)
            await process.until(stop, keeping, watch.run(), watching.run())
            health.ready = False
            log.info("draining for %g s", settings.drain_seconds)
            await asyncio.sleep(settings.drain_seconds)
    log.info("ended")


if __name__ == "__main__":
    main()
