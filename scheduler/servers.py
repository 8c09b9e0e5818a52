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

from aiohttp import web

from allocation.names import SYSTEM_NAMESPACE
from certs.ephemeral import EphemeralSource
from certs.files import FileSource
from certs.leaf import ServerNames
from certs.source import CertificateSource, listener_context
from cluster import version
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.events import Recorder
from cluster.http.listener import listening
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.assignment_routes import FindPod, assignment_routes
from scheduler.api.authentication import Authenticator, require_caller
from scheduler.api.consolidation import Consolidation
from scheduler.api.health import application, health_routes
from scheduler.api.manifest_pod import Admit
from scheduler.api.namespaced.consolidation_routes import consolidation_routes
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import SERVICE
from scheduler.api.namespaced.routes import namespace_routes
from scheduler.api.namespaced.turns import FairTurns
from scheduler.api.queries import Queries
from scheduler.api.routes import API_PATHS, api_routes
from scheduler.api.token_reviews import TokenReviews
from scheduler.assignments import Assignments
from scheduler.extender.routes import PATHS, extender_routes
from scheduler.extender.verbs import Extender
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.serving_settings import NamespaceApiSettings, ServingSettings
from scheduler.settings import SchedulerSettings
from scheduler.ui.cordon import cordon_routes
from scheduler.ui.feed import Feed
from scheduler.ui.gate import REVIEWS, REVIEWS_SECONDS, PageGate
from scheduler.ui.history import History
from scheduler.ui.messages import Replica
from scheduler.ui.routes import set_headers, ui_application, ui_routes
from scheduler.ui.sections.kinds import kinds
from scheduler.ui.stream import Streams
from webhook import dry_run
from webhook.cluster_admission import ClusterAdmission
from webhook.metrics import Metrics as AdmissionMetrics
from webhook.routes import admission_routes
from webhook.settings import WebhookSettings

SECTIONS: Final = {"webhook": WebhookSettings}
"""Further sections of the configuration file that this process reads."""


@asynccontextmanager
async def serving(
    configuration: Configuration[SchedulerSettings],
    *,
    api: Api,
    leader: Leader,
    metrics: Metrics,
    recorder: Recorder,
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
    if settings.extender or configuration.allocation.hands_over:
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
    history = History(lambda: leader.deciding)
    feed = Feed(lambda: leader.deciding, kinds=kinds(recorder.recent, history))
    if settings.ui.enabled:
        background += [feed.run(), history.run()]
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
            namespaced_app = _namespaced_application(
                settings, api=api, tokens=tokens, leader=leader, admit=admit, feed=feed, recorder=recorder
            )
            tls = listener_context(_source(namespaced))
            await stack.enter_async_context(
                listening(namespaced_app, host=namespaced.host or None, port=namespaced.port, tls=tls)
            )
        if settings.ui.enabled:
            own_api = api_routes(lambda: _queries(leader), admit=admit, is_open=True)
            page = ui_application([*ui_routes(_streams(feed, leader, settings)), *own_api])
            await stack.enter_async_context(listening(page, host=settings.ui.host, port=settings.ui.port))
        yield port


def _namespaced_application(
    settings: SchedulerSettings,
    *,
    api: Api,
    tokens: TokenReviews,
    leader: Leader,
    admit: Admit,
    feed: Feed,
    recorder: Recorder,
) -> web.Application:
    """Return the API for users with rights in one namespace, with the page where it is exposed."""
    access = AccessReviews(api)
    gate = NamespaceGate(tokens, access)
    routes = namespace_routes(lambda: _queries(leader), admit=admit, gate=gate, turns=FairTurns(clock=time.monotonic))
    if settings.moves_pods:
        routes += consolidation_routes(lambda: _consolidation(leader), gate=gate)
    if settings.assignments.ports is not None:
        routes += assignment_routes(lambda: _assignments(leader), gate=gate)
    if settings.ui.exposed:
        readers = PageGate(tokens, AccessReviews(api, seconds=REVIEWS_SECONDS, most=REVIEWS))
        routes += cordon_routes(lambda: leader.deciding, api=api, gate=gate, access=access, recorder=recorder)
        routes += ui_routes(_streams(feed, leader, settings), guard=readers.guarded)
    app = application(routes)
    app.on_response_prepare.append(set_headers)
    return app


def _streams(feed: Feed, leader: Leader, settings: SchedulerSettings) -> Streams:
    """Return the event streams of one listener."""
    program = version.own().version
    return Streams(feed, replica=lambda: _replica(leader, settings, program), most=settings.ui.most_streams)


def _replica(leader: Leader, settings: SchedulerSettings, program: str) -> Replica:
    """Return what the page says about this replica."""
    unready = leader.unready
    return Replica(
        state="deciding" if leader.deciding is not None else "unready" if unready else "standby",
        problem=unready,
        leader=leader.holder,
        mode="extender" if settings.extender else "loop",
        version=program,
    )


def _queries(leader: Leader) -> Queries | None:
    return leader.deciding.queries if leader.deciding is not None else None


def _consolidation(leader: Leader) -> Consolidation | None:
    return leader.deciding.consolidation if leader.deciding is not None else None


def _assignments(leader: Leader) -> tuple[Assignments, FindPod] | None:
    return leader.deciding.assignments if leader.deciding is not None else None


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
