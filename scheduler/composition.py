"""The listeners of the scheduler's process, and what is served on which: rooms meet here and nowhere else.

In extender mode admission, a room and a process of its own otherwise, can be served on the extender's TLS port.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from allocation.settings import AllocationSettings
from certs.files import FileSource
from certs.source import listener_context
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.exposition import Registry
from cluster.listener import listening
from cluster.reflector import Reflector
from cluster.resource import RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from scheduler.callers import Callers, guarding
from scheduler.extender import Extender
from scheduler.extender_routes import PATHS, extender_routes
from scheduler.inquiry_routes import INQUIRY_PATHS, inquiry_routes
from scheduler.leader import Leader
from scheduler.metrics import Metrics
from scheduler.server import application, health_routes
from scheduler.settings import SchedulerSettings, ServingSettings
from webhook import rehearsal
from webhook.admission import Admission
from webhook.metrics import Metrics as AdmissionMetrics
from webhook.routes import admission_routes
from webhook.settings import WebhookSettings

SECTIONS: Final = {"webhook": WebhookSettings}
"""The sections of the configuration file that this process reads besides its own."""


@asynccontextmanager
async def serving(
    configuration: Configuration[SchedulerSettings], *, api: Api, leader: Leader, metrics: Metrics
) -> AsyncIterator[int]:
    """Listen while the block runs; answers the port, which 0 in the settings leaves open.

    Raises:
        OSError: a port is taken, an address is not ours, or a certificate cannot be used.
    """
    settings, registries = configuration.own, [metrics.registry]
    routes = inquiry_routes(
        lambda: leader.deciding.inquiry if leader.deciding is not None else None,
        admit=partial(
            rehearsal.rehearse, allocation=configuration.allocation, settings=configuration.others["webhook"]
        ),
        is_open=settings.is_private,
    )
    chores: list[Coroutine[None, None, None]] = []
    if settings.extender:
        routes += extender_routes(lambda: _deciding(leader))
        if settings.serving.webhook:
            quotas = NamespaceQuotas()
            reviews, registry = _admission(configuration.allocation, configuration.others["webhook"], quotas)
            routes += reviews
            registries.append(registry)
            chores.append(
                Reflector(api, RESOURCE_QUOTAS, ResourceQuota, on_set=quotas.set, on_delete=quotas.drop).run()
            )
    health = health_routes(registries=registries, ready=lambda: leader.is_ready)
    app = application(
        [*health, *routes],
        largest_body_mib=settings.serving.largest_body_mib,
        middlewares=[guarding(Callers(api, settings.serving), PATHS | INQUIRY_PATHS)],
    )
    async with AsyncExitStack() as stack:
        for chore in chores:
            stack.callback(asyncio.create_task(chore).cancel)
        listener = listening(app, host=settings.host, port=settings.port, tls=_tls(settings.serving))
        port = await stack.enter_async_context(listener)
        if settings.probe_port:
            probes = listening(application(health), host=settings.probe_host or None, port=settings.probe_port)
            await stack.enter_async_context(probes)
        yield port


def _deciding(leader: Leader) -> Extender | None:
    return leader.deciding.extender if leader.deciding is not None else None


def _admission(
    allocation: AllocationSettings, settings: WebhookSettings, quotas: NamespaceQuotas
) -> tuple[list[web.RouteDef], Registry]:
    metrics = AdmissionMetrics()
    admission = Admission(allocation=allocation, settings=settings, metrics=metrics, quotas=quotas.hards)
    return admission_routes(admission), metrics.registry


def _tls(settings: ServingSettings) -> ssl.SSLContext | None:
    if not settings.certificate_file:
        return None
    client_ca = Path(settings.client_ca_file) if settings.client_ca_file else None
    return listener_context(FileSource(Path(settings.certificate_file), Path(settings.key_file), client_ca=client_ca))
