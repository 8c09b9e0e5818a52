"""The Leases of cards follow the pods, whatever is left over or lost; on a real API server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from allocation.allocation import Charge
from allocation.names import SYSTEM_NAMESPACE, legacy_heartbeat_lease
from allocation.request import PodRequest
from cluster.api import Api
from cluster.errors import ApiError
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import LEASES, NODES, PODS
from lab import kubectl, manifests
from scheduler.binding.lease_reconciler import LeaseReconciler
from scheduler.binding.lease_writes import LeaseWrites
from scheduler.cycle.result import Scheduled
from scheduler.objects import Node, Pod
from tests.scheduler.binding.conftest import NAMESPACES
from tests.scheduler.support.builders import state, status
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.leasing import allocation, keeper
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scheduler.state.cluster_state import ClusterState
    from tests.scheduler.binding.conftest import LeaseServer

pytestmark = pytest.mark.apiserver


class Term:
    """What a term has for Leases: informers, a state and the reconciler."""

    def __init__(self, server: LeaseServer, token: str, *, api: Api | None = None) -> None:
        """Take a node `n1` with eight cards as reported."""
        self.state = state()
        self.state.agent_reports.set(status("n1", cards=8))
        self.token = token
        self.nodes = Informer(server.api, NODES, Node)
        self.pods = Informer(server.api, PODS, Pod, namespace=NAMESPACES[0])
        self.leases = Informer(server.api, LEASES, Lease, namespace=SYSTEM_NAMESPACE)
        self.nodes.add_handlers(on_upsert=self.state.set_node, on_delete=self.state.drop_node)
        self.leases.add_handlers(on_upsert=self.state.set_lease, on_delete=self.state.drop_lease)
        self.pods.add_handlers(on_upsert=self.state.set_pod, on_delete=self.state.drop_pod)
        self.keeper = keeper(server.api, self.state, token=token)
        writes = fenced(api or server.api, token=token, timeout_seconds=5)
        self.reconciler = LeaseReconciler(
            writes,
            LeaseWrites(writes, leases=self.state.device_leases),
            leases=self.state.device_leases,
            heartbeats=self.state.agent_leases,
            has_node=lambda name: self.nodes.get(name) is not None,
            inventory_of=self.state.ledger.inventory,
        )

    @asynccontextmanager
    async def running(self, *, reconciling: bool = True) -> AsyncIterator[Term]:
        """Run the informers, and then the reconciler, while the block runs."""
        async with asyncio.TaskGroup() as group:
            informers = (self.nodes, self.leases, self.pods)
            tasks = [group.create_task(each.run()) for each in informers]
            for each in informers:
                await each.synced.wait()
            if reconciling:
                tasks.append(group.create_task(self.reconciler.run()))
            yield self
            for task in tasks:
                task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is met."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- the state has no event for each condition
            await asyncio.sleep(0.02)


async def deleted(server: LeaseServer, name: str) -> None:
    """Wait until a Lease does not exist."""
    async with asyncio.timeout(PATIENCE_S):
        while name in await server.leases():  # noqa: ASYNC110 -- it asks the API server
            await asyncio.sleep(0.02)


@pytest.fixture
async def node(server: LeaseServer) -> AsyncIterator[None]:
    """The Node `n1`."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await server.admin.create(NODES, body)
    yield
    if "n1" in {each.metadata.name for each in await server.admin.list(NODES, Node)}:
        await server.admin.request("DELETE", NODES.path(name="n1"))


async def leased(server: LeaseServer, token: str, *cards: int, name: str = "") -> Pod:
    """Return a pod that runs with exclusive cards and has their Leases."""
    pod = await server.pod(name)
    chosen = Scheduled("n1", PodRequest(()), allocation(*cards), "")
    assert await keeper(server.api, state("n1"), token=token).acquire(pod, chosen) is None
    return await server.bind(pod, token, *cards)


def is_closed(made: ClusterState, card: int) -> bool:
    """Return whether a Lease closes a card of node n1."""
    return made.ledger.reservation(f"lease:gpu-n1-{card}") is not None


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("case", ["missing", "succeeded", "failed", "recreated", "unbound"])
async def test_a_lease_whose_pod_does_not_have_the_card_is_deleted(server: LeaseServer, case: str) -> None:
    """At term start: the earlier term could not do it. A pod that runs keeps its Lease."""
    earlier = await server.lead("earlier")
    runs = await leased(server, earlier, 0)
    if case == "unbound":
        pod = await server.pod()
        chosen = Scheduled("n1", PodRequest(()), allocation(1), "")
        assert await keeper(server.api, state("n1"), token=earlier).acquire(pod, chosen) is None
    else:
        pod = await leased(server, earlier, 1, name="ends")
    if case in ("succeeded", "failed"):
        await server.finish(pod, case.capitalize())
    elif case in ("missing", "recreated"):
        await server.delete_pod(pod)
    if case == "recreated":
        await server.pod("ends")
    term = Term(server, await server.lead("later"))
    async with term.running(reconciling=False):
        assert is_closed(term.state, 1)
        await term.reconciler.reconcile()
        await deleted(server, "gpu-n1-1")
        await until(lambda: not is_closed(term.state, 1))
    assert (await server.lease("gpu-n1-0"))["spec"]["holderIdentity"] == runs.uid


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("how", ["deleted", "finished"])
async def test_a_pods_lease_is_deleted_when_it_ends(server: LeaseServer, how: str) -> None:
    """At once, not at the next comparison."""
    token = await server.lead()
    pod = await leased(server, token, 0)
    async with Term(server, token).running() as term:
        await until(lambda: len(term.state.device_leases) == 1)
        if how == "finished":
            await server.finish(pod, "Succeeded")
        else:
            await server.delete_pod(pod)
        async with asyncio.timeout(10):  # the comparisons are 30 s apart
            await deleted(server, "gpu-n1-0")


@pytest.mark.usefixtures("node")
async def test_a_pod_that_this_term_binds_keeps_its_lease(server: LeaseServer) -> None:
    """It has no node yet, but the ledger holds its cards for it; when that ends, so does the Lease."""
    token, pod = await server.lead(), await server.pod()
    term, chosen = Term(server, token), Scheduled("n1", PodRequest(()), allocation(0), "")
    async with term.running(reconciling=False):
        term.state.ledger.assume(pod.uid, "n1", (Charge("GPU-n1-0", 1000, 1000, 1, whole=True),))
        assert await term.keeper.acquire(pod, chosen) is None
        await until(lambda: len(term.state.device_leases) == 1)
        await term.reconciler.reconcile()
        assert (await server.leases()).keys() == {"gpu-n1-0"}
        term.state.ledger.release(pod.uid)
        term.state.device_leases.refresh(pod.uid)
        assert is_closed(term.state, 0)
        await term.reconciler.reconcile()
        assert await server.leases() == {}


@pytest.mark.usefixtures("node")
async def test_a_lease_is_kept_while_its_pod_cannot_be_read(server: LeaseServer) -> None:
    """The cache says that the pod is gone, and the API server answers 500: the cache may be wrong."""
    earlier = await server.lead("earlier")
    pod = await leased(server, earlier, 0)
    await server.delete_pod(pod)

    class NoPods(Api):
        asked = 0

        async def request(self, method: str, path: str, **how: Any) -> bytes:
            if "/pods/" in path:
                self.asked += 1
                raise ApiError(request=path, status=500, reason="InternalError", message="etcd is slow")
            return await super().request(method, path, **how)

    failing = NoPods(server.api._connection)
    token = await server.lead("later")
    term = Term(server, token, api=failing)
    async with term.running(reconciling=False):
        await term.reconciler.reconcile()
        assert failing.asked == 1
        assert (await server.leases()).keys() == {"gpu-n1-0"}
        assert is_closed(term.state, 0)


async def test_leases_of_a_node_that_is_gone_are_deleted_until_it_returns(server: LeaseServer, node: None) -> None:
    """Its pod has not ended: nothing is created again before the Node exists again."""
    token = await server.lead()
    await leased(server, token, 0)
    term = Term(server, token)
    async with term.running(reconciling=False):
        await term.reconciler.reconcile()
        assert (await server.leases()).keys() == {"gpu-n1-0"}
        await server.admin.request("DELETE", NODES.path(name="n1"))
        await until(lambda: term.nodes.get("n1") is None)
        await term.reconciler.reconcile()
        assert await server.leases() == {}
        await until(lambda: len(term.state.device_leases) == 0)
        await term.reconciler.reconcile()
        assert await server.leases() == {}
        await server.admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await until(lambda: term.nodes.get("n1") is not None)
        await term.reconciler.reconcile()
        assert (await server.leases()).keys() == {"gpu-n1-0"}


@pytest.mark.usefixtures("node")
async def test_a_missing_lease_of_a_running_pod_is_created_again(server: LeaseServer) -> None:
    """An administrator has deleted it; for a pod that has ended since, nothing is created."""
    token = await server.lead()
    pod, ended = await leased(server, token, 0, 1), await leased(server, token, 2)
    term = Term(server, token)
    async with term.running(reconciling=False):
        for name in ("gpu-n1-1", "gpu-n1-2"):
            await server.admin.request("DELETE", LEASES.path(namespace=SYSTEM_NAMESPACE, name=name))
        await until(lambda: len(term.state.device_leases) == 1)
        cached = [each for each in term.state.device_leases.pods() if each.uid == ended.uid]
        await server.delete_pod(ended)
        await until(lambda: len(term.state.device_leases.pods()) == 1)
        term.state.device_leases.set_pod(cached[0])  # as if its deletion had not been seen
        await term.reconciler.reconcile()
    assert {name: each.spec.holder_identity for name, each in (await server.leases()).items()} == {
        "gpu-n1-0": pod.uid,
        "gpu-n1-1": pod.uid,
    }


@pytest.mark.usefixtures("node")
async def test_a_deposed_leader_deletes_no_lease_of_a_later_one(server: LeaseServer) -> None:
    """To it, the pod has no node and is not being bound; the later leader is about to bind it."""
    pod, earlier = await server.pod(), await server.lead("earlier")
    term = Term(server, earlier)
    chosen = Scheduled("n1", PodRequest(()), allocation(0), "")
    async with term.running(reconciling=False):
        later = await server.lead("later")
        assert await keeper(server.api, state("n1"), token=later).acquire(pod, chosen) is None
        await until(lambda: len(term.state.device_leases) == 1)
        await term.reconciler.reconcile()
    assert (await server.leases()).keys() == {"gpu-n1-0"}


@pytest.mark.usefixtures("node")
async def test_the_lease_of_an_older_agent_is_deleted_when_the_present_one_is_seen(server: LeaseServer) -> None:
    """Its name would block the Lease of a card of another node."""
    layout, file = server.layout, str(manifests.ROOT / "base" / "device-leases.yaml")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {"holderIdentity": "agent", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    path, legacy = LEASES.path(namespace=SYSTEM_NAMESPACE), legacy_heartbeat_lease("n1")
    await asyncio.to_thread(kubectl.run, layout, "delete", "-f", file)  # the agent created it before the upgrade
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await server.admin.request("POST", path, body={**body, "metadata": {"name": legacy}})
            except ApiError:
                await asyncio.sleep(0.1)  # the API server notices the deletion of a policy after a moment
            else:
                break
    await asyncio.to_thread(kubectl.run, layout, "apply", "-f", file)
    term = Term(server, await server.lead())
    async with term.running(reconciling=False):
        await until(lambda: term.leases.get(legacy, SYSTEM_NAMESPACE) is not None)
        await term.reconciler.reconcile()
        assert term.leases.get(legacy, SYSTEM_NAMESPACE) is not None
        await server.admin.request("POST", path, body={**body, "metadata": {"name": "agent-n1"}})
        await until(lambda: term.leases.get("agent-n1", SYSTEM_NAMESPACE) is not None)
        await term.reconciler.reconcile()
        await until(lambda: term.leases.get(legacy, SYSTEM_NAMESPACE) is None)
    await server.admin.request("DELETE", LEASES.path(namespace=SYSTEM_NAMESPACE, name="agent-n1"))
