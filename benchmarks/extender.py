"""The extender of one term, served over TLS, whose cluster is a fleet of `benchmarks.fleets` and no API server."""

import asyncio
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe

import aiohttp
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
from cluster.listener import listening
from cluster.metadata import ObjectMeta
from scheduler.callers import Callers, guarding
from scheduler.extender_routes import PATHS, extender_routes
from scheduler.heartbeats import Lease, LeaseSpec
from scheduler.metrics import Metrics
from scheduler.objects import Meta, Node, NodeStatus
from scheduler.server import application
from scheduler.settings import SchedulerSettings
from scheduler.state import State
from scheduler.term import TermWork

_HOST = "127.0.0.1"
_DAY = 86_400


def serve(nodes: int, told: Pipe) -> None:
    """Serve until terminated; tells the port and the authority's certificate."""
    uvloop.run(_serve(nodes, told))


async def _serve(nodes: int, told: Pipe) -> None:
    now = datetime.now(UTC)
    authority = new_authority("benchmark", lifetime=timedelta(days=1), now=now)
    source = IssuedSource(authority, names=ServerNames(("localhost",), (_HOST,)), now=now)
    settings = SchedulerSettings(extender=True)
    async with aiohttp.ClientSession() as session:
        api = Api(Connection(session=session, server="http://nowhere.invalid", headers=nothing, namespace=""))
        work = TermWork(
            api=api,
            token="",
            settings=settings,
            allocation=AllocationSettings(),
            recorder=Recorder(api, component="benchmark", instance="benchmark"),
            metrics=Metrics(ledger=lambda: work.ledger),
            is_trusted=lambda: True,
        )
        settle(work.state, nodes)
        process.settle()
        guard = guarding(Callers(api, settings.serving), PATHS)
        app = application(extender_routes(lambda: work.extender), middlewares=[guard])
        async with (
            listening(app, host=_HOST, port=0, tls=listener_context(source)) as port,
            asyncio.TaskGroup() as tasks,
        ):
            if work.extender is not None:
                tasks.create_task(work.extender.run())
            told.send((port, authority.certificate_pem.decode()))


def settle(state: State, nodes: int) -> None:
    """Let the state know a fleet that is half full, whose agents all live."""
    ledger = fleets.half_full(nodes)
    for name in ledger.nodes:
        allocatable = {"cpu": "256", "memory": "2Ti", "pods": "1000"}
        state.set_node(Node(Meta(name=name), status=NodeStatus(allocatable)))
        inventory = ledger.inventory(name)
        if inventory is not None:
            state.set_status(GpuNodeStatus(ObjectMeta(name=name), status_of(inventory)))
        state.set_lease(Lease(ObjectMeta(name=names.heartbeat_lease(name)), LeaseSpec("agent", _DAY, "now")))
    for holding in ledger.holdings():
        state.ledger.record(holding.uid, holding.node, holding.charges)


async def nothing() -> dict[str, str]:
    """Answer no headers: nobody asks who we are."""
    return {}
