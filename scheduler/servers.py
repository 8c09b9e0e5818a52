"""The listeners of the scheduler's process, and the routes of each.

In extender mode the extender's TLS port can also serve admission, which otherwise is a process of its own. This is the
only module that imports both the scheduler and the webhook.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from allocation.names import SYSTEM_NAMESPACE
from certs.ephemeral import EphemeralSource
from certs.files import FileSource
from certs.leaf import ServerNames
from certs.source import CertificateSource, listener_context
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.http.listener import listening
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.authentication import Authenticator, require_caller
from scheduler.api.consolidation import Consolidation
from scheduler.api.health import application, health_routes
from scheduler.api.namespaced.consolidation_routes import consolidation_routes
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import SERVICE
from scheduler.api.namespaced.routes import namespace_routes
from scheduler.api.namespaced.turns import FairTurns
from scheduler.api.queries import Queries
from scheduler.api.routes import API_PATHS, api_routes
from scheduler.api.token_reviews import TokenReviews
from scheduler.extender.routes import PATHS, extender_routes
from scheduler.extender.verbs import Extender
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.settings import NamespaceApiSettings, SchedulerSettings, ServingSettings
from webhook import dry_run
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics as AdmissionMetrics
from webhook.routes import admission_routes
from webhook.settings import WebhookSettings

SECTIONS: Final = {"webhook": WebhookSettings}
"""Further sections of the configuration file that this process reads."""


@asynccontextmanager
async def serving(
    configuration: Configuration[SchedulerSettings], *, api: Api, leader: Leader, metrics: Metrics
) -> AsyncIterator[int]:
    """Listen while the block runs; return the port, which is arbitrary if the settings have port 0.

    Raises:
        OSError: a port is in use, an address is not local, or a certificate cannot be used.
    """
    settings, registries = configuration.own, [metrics.registry]
    admit = partial(dry_run.dry_run, allocation=configuration.allocation, settings=configuration.others["webhook"])
    routes = api_routes(lambda: _queries(leader), admit=admit, is_open=settings.is_private)
    tokens = TokenReviews(api)
    background: list[Coroutine[None, None, None]] = []
    admitting: ClusterAdmission | None = None
    if settings.extender:
        routes += extender_routes(lambda: _extender(leader))
        if settings.serving.webhook:
            own = AdmissionMetrics()
            admitting = ClusterAdmission(
                api, allocation=configuration.allocation, settings=configuration.others["webhook"], metrics=own
            )
            routes += admission_routes(admitting.admission)
            registries.append(own.registry)
            background += [informer.run() for informer in admitting.informers]
    health = health_routes(registries=registries, unready=lambda: leader.unready)
    app = application(
        [*health, *routes],
        largest_body_mib=settings.serving.largest_body_mib,
        middlewares=[require_caller(Authenticator(tokens, settings.serving), PATHS | API_PATHS)],
    )
    async with AsyncExitStack() as stack:
        for coroutine in background:
            stack.callback(asyncio.create_task(coroutine).cancel)
        if admitting is not None:
            await admitting.listed()
        listener = listening(app, host=settings.host, port=settings.port, tls=_tls(settings.serving))
        port = await stack.enter_async_context(listener)
        if settings.probe_port:
            probes = listening(application(health), host=settings.probe_host or None, port=settings.probe_port)
            await stack.enter_async_context(probes)
        namespaced = settings.namespace_api
        if namespaced.port:
            gate = NamespaceGate(tokens, AccessReviews(api))
            namespaced_routes = namespace_routes(
                lambda: _queries(leader), admit=admit, gate=gate, turns=FairTurns(clock=time.monotonic)
            )
            if settings.moves_pods:
                namespaced_routes += consolidation_routes(lambda: _consolidation(leader), gate=gate)
            namespaced_app = application(namespaced_routes)
            tls = listener_context(_source(namespaced))
            await stack.enter_async_context(
                listening(namespaced_app, host=namespaced.host or None, port=namespaced.port, tls=tls)
            )
        yield port


def _queries(leader: Leader) -> Queries | None:
    return leader.deciding.queries if leader.deciding is not None else None


def _consolidation(leader: Leader) -> Consolidation | None:
    return leader.deciding.consolidation if leader.deciding is not None else None


def _extender(leader: Leader) -> Extender | None:
    return leader.deciding.extender if leader.deciding is not None else None


def _tls(settings: ServingSettings) -> ssl.SSLContext | None:
    if not settings.certificate_file:
        return None
    client_ca = Path(settings.client_ca_file) if settings.client_ca_file else None
    return listener_context(FileSource(Path(settings.certificate_file), Path(settings.key_file), client_ca=client_ca))


def _source(settings: NamespaceApiSettings) -> CertificateSource:
    if settings.certificate_file:
        return FileSource(Path(settings.certificate_file), Path(settings.key_file))
    return EphemeralSource(ServerNames(dns_names=(f"{SERVICE}.{SYSTEM_NAMESPACE}.svc",)))
