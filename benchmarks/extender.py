"""The extender of one leader term, served over TLS, with a fleet of `benchmarks.fleets` and no API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from typing import Any

import aiohttp
import msgspec
import uvloop

from allocation import names
from allocation.settings import AllocationSettings
from benchmarks import fleets
from certs.leaf import ServerNames
from certs.source import IssuedSource, listener_context
from certs.x509 import new_authority
from cluster import process
from cluster.api import Api
from cluster.connection import Connection
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.http.listener import listening
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from cluster.metadata import ObjectMeta
from scheduler.api.authentication import Authenticator, require_caller
from scheduler.api.health import application
from scheduler.api.token_reviews import TokenReviews
from scheduler.extender.routes import PATHS, extender_routes
from scheduler.metrics.instruments import Metrics
from scheduler.node_status import NodeStatus
from scheduler.objects import Node, NodeMeta, Pod
from scheduler.settings import SchedulerSettings
from scheduler.state.cluster_state import ClusterState
from scheduler.term_builder import build_term

_HOST = "127.0.0.1"
_DAY = 86_400


def serve(nodes: int, pods: Sequence[Mapping[str, Any]], pipe: Pipe) -> None:
    """Serve a fleet where `pods` wait until terminated; send the port and the authority's certificate to `pipe`."""
    uvloop.run(_serve(nodes, pods, pipe))


async def _serve(nodes: int, pods: Sequence[Mapping[str, Any]], pipe: Pipe) -> None:
    now = datetime.now(UTC)
    authority = new_authority("benchmark", lifetime=timedelta(days=1), now=now)
    source = IssuedSource(authority, names=ServerNames(("localhost",), (_HOST,)), now=now)
    settings = SchedulerSettings(extender=True)
    async with aiohttp.ClientSession() as session:
        api = Api(Connection(session=session, server="http://nowhere.invalid", headers=nothing, namespace=""))
        term = build_term(
            api=api,
            token="",
            settings=settings,
            allocation=AllocationSettings(),
            recorder=Recorder(api, component="benchmark", instance="benchmark"),
            metrics=Metrics(),
            is_trusted=lambda: True,
        )
        fill(term.state, nodes)
        for pod in pods:
            term._informers.pods.add_if_new(msgspec.convert(pod, Pod))  # noqa: SLF001 -- no API server shows it
        process.settle()
        guard = require_caller(Authenticator(TokenReviews(api), settings.serving), PATHS)
        app = application(extender_routes(lambda: term.extender), middlewares=[guard])
        async with (
            listening(app, host=_HOST, port=0, tls=listener_context(source)) as port,
            asyncio.TaskGroup() as tasks,
        ):
            if term.extender is not None:
                tasks.create_task(term.extender.run())
            pipe.send((port, authority.certificate_pem.decode()))


def fill(state: ClusterState, nodes: int, *, labels: Callable[[int], dict[str, str]] = lambda _: {}) -> None:
    """Fill the state with a fleet that is half full and whose agents are all alive; `labels` are those of a node."""
    ledger = fleets.half_full(nodes)
    for number, name in enumerate(ledger.nodes):
        allocatable = {"cpu": "256", "memory": "2Ti", "pods": "1000"}
        state.set_node(Node(NodeMeta(name=name, labels=labels(number)), status=NodeStatus(allocatable)))
        inventory = ledger.inventory(name)
        if inventory is not None:
            state.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(inventory)))
        state.set_lease(Lease(LeaseMeta(name=names.heartbeat_lease(name)), LeaseSpec("agent", _DAY, "now")))
    for reservation in ledger.reservations():
        state.ledger.record(reservation.uid, reservation.node, reservation.charges)


async def nothing() -> dict[str, str]:
    """Return no headers: no server authenticates the client."""
    return {}
