"""A leader whose ledger is wrong ends its term and counts again, on a real API server."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import LEADER, SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings
from allocation.wire import environment
from cluster.api import Api
from cluster.connect import connect
from cluster.election import Election
from cluster.events import Recorder
from cluster.gpu_node_status import status_of
from lab import kubeconfig, manifests, wait
from lab.client import client
from scheduler import fence
from scheduler.fence import Fence
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.term_builder import build_term
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cluster.election import Term
    from lab.layout import Layout
    from scheduler.term import LeaderTerm

pytestmark = pytest.mark.apiserver
NAMESPACE, NODE = "team", "node-0"
CARD_MIB, QUOTA_MIB, SLICE_MIB = 1000, 900, 300
SECONDS = 20.0
"""Until a new term counts correctly; the comparison begins after one second, and waits one to be sure."""


@pytest.fixture
def server(empty_cluster: Layout) -> Layout:
    """An API server with the project's manifests, a node with a card, and a quota of a namespace."""
    manifests.install(empty_cluster)
    api = client(empty_cluster)
    api.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        {
            "apiVersion": "gpu.scheduling/v1",
            "kind": "GpuNodeStatus",
            "metadata": {"name": NODE},
            "spec": {"nodeName": NODE},
        },
        {
            "apiVersion": "gpu.scheduling/v1",
            "kind": "GpuQuota",
            "metadata": {"name": "limit", "namespace": NAMESPACE},
            "spec": {"total": {"limits": {"nvidia.com/gpumem": QUOTA_MIB}}},
        },
    )
    capacity = {"status": {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    api.patch("node", NODE, capacity, subresource="status")
    cards = NodeInventory(NODE, (Card(f"GPU-{NODE}-0", 0, CARD_MIB, slots=9),))
    api.patch("gpunodestatus", NODE, {"status": msgspec.to_builtins(status_of(cards))}, subresource="status")
    namespaces.usable(empty_cluster, NAMESPACE, timeout_s=PATIENCE_S)
    return empty_cluster


class Leading:
    """A replica of the scheduler in the test's process, whose memory a test can damage.

    Attributes:
        metrics: its metrics.
        leader: what leads.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.metrics = Metrics()
        self.leader: Leader

    @property
    def term(self) -> LeaderTerm:
        """The current term."""
        assert self.leader.deciding is not None
        return self.leader.deciding

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric of the scheduler, or 0."""
        return self.metrics.registry.get_sample_value(f"tranche_scheduler_{name}", labels) or 0.0

    async def create(self, name: str) -> None:
        """Create a pod for a slice of the card, as admission would prepare it."""
        env = [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
            for variable, key in environment.references("main", 1).items()
        ]
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(SLICE_MIB)}
        container = {"name": "main", "image": "none", "env": env, "resources": {"limits": limits}}
        spec = {"schedulerName": "tranche", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await asyncio.to_thread(client(self.layout).create, pod, namespace=NAMESPACE)

    async def until(self, found: Callable[[dict[str, Any]], Any], name: str, what: str) -> dict[str, Any]:
        """Wait until a pod is as `found` says, and return it."""
        api, seen = client(self.layout), dict[str, Any]()

        def look() -> Any:
            seen.update(api.get("pod", name, namespace=NAMESPACE))
            return found(seen)

        await asyncio.to_thread(wait.until, look, what=what, timeout_s=PATIENCE_S)
        return seen

    async def bound(self, name: str) -> str:
        """Wait until a pod has a node; return the token of the leader that bound it."""
        shown = await self.until(lambda pod: pod["spec"].get("nodeName"), name, f"a node for {name}")
        return str(shown["metadata"]["annotations"][LEADER])


@asynccontextmanager
async def leading(layout: Layout) -> AsyncIterator[Leading]:
    """Run a replica as its ServiceAccount, which compares its ledger every second."""
    identity = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")
    made, settings = Leading(layout), SchedulerSettings(recount_seconds=1.0)
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        api = Api(connection)
        recorder = Recorder(api, component="test", instance="test")
        election = Election(
            api, namespace=SYSTEM_NAMESPACE, name=fence.NAME, identity="replica", settings=settings.election
        )

        def build(term: Term) -> LeaderTerm:
            return build_term(
                api=api,
                token=term.token,
                settings=settings,
                allocation=AllocationSettings(),
                recorder=recorder,
                metrics=made.metrics,
                is_trusted=lambda: election.is_trusted,
            )

        made.leader = Leader(election=election, fence=Fence(api), settings=settings, build_term=build)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(made.leader.run(ended))
        try:
            yield made
        finally:
            ended.set_result(None)
            await running


async def test_leader_with_a_wrong_ledger_counts_again_within_seconds(
    server: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    """Card and quota seem full, so a pod that fits waits; the next term, which need not wait, places it."""
    caplog.set_level(logging.INFO, "scheduler.leader")
    async with leading(server) as replica:
        await replica.create("first")
        first_token = await replica.bound("first")
        assert replica.metric("terms_total") == 1
        damaged, began = replica.term, time.monotonic()
        damaged.ledger.used[:, damaged.ledger.row(NODE), 0] = (CARD_MIB, 1000, 9, 0)
        damaged.state.quotas.use(NAMESPACE).memory_mib += 12_345
        await replica.create("second")
        second_token = await replica.bound("second")
        assert time.monotonic() - began < SECONDS
        assert damaged.is_wrong
        assert "did not hand over" not in caplog.text
        for kind in ("card", "quota"):
            assert replica.metric("ledger_differences_total", kind=kind) == 1
        assert replica.metric("terms_total") == 2
        assert int(second_token.partition("/")[0]) > int(first_token.partition("/")[0])
        await replica.create("third")
        await replica.bound("third")
        state = replica.term.state
        assert state.ledger.used[0].sum() == state.quotas.use(NAMESPACE).memory_mib == 3 * SLICE_MIB
        assert (state.quotas.use(NAMESPACE).pods, len(list(state.ledger.reservations()))) == (3, 3)
        await replica.create("fourth")
        await replica.until(
            lambda pod: "ResourceQuotaNotFit" in str(pod["status"].get("conditions")), "fourth", "a reason to wait"
        )
        await asyncio.to_thread(
            wait.until,
            lambda: replica.metric("ledger_comparisons_total") > 2,
            what="comparisons of the new term",
            timeout_s=PATIENCE_S,
        )
        assert replica.metric("terms_total") == 2
