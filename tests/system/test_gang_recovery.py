"""A gang whose leader is killed between two of its Bindings is completed before any other pod is decided."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from allocation import names
from chaos import world
from chaos.settings import CARDS, STEADY_NODES, Settings
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import PODS
from lab.client import client
from scheduler.objects import Pod
from tests.support.depth import repetitions
from tests.support.patience import POLL_S
from tests.system.support.triggers import Trigger, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.world import World
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600)]
TEAM = "team-a"
SIZE = 4
ROUNDS = repetitions(1, 34)
"""How often the leader is killed after each of the first three Bindings of a gang."""
HEALED_S = 70.0


class Cluster:
    """The cluster with two schedulers, and its pods."""

    def __init__(self, made: World, api: Api) -> None:
        self.world = made
        self.api = api

    async def create(self, name: str, *, cards: int = 1, gang: str = "", priority: str = "") -> None:
        """Create a pod on the first node, of a gang or by itself."""
        annotations = {names.GANG: gang, names.GANG_MIN_MEMBERS: str(SIZE)} if gang else {}
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
        spec: dict[str, Any] = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": STEADY_NODES[0]}}
        if priority:
            spec["priorityClassName"] = priority
        metadata = {"name": name, "annotations": annotations}
        await self.api.create(PODS, {"metadata": metadata, "spec": spec}, namespace=TEAM)

    async def pods(self) -> dict[str, Pod]:
        """Return the live pods by name."""
        return {pod.metadata.name: pod for pod in await self.api.list(PODS, Pod, namespace=TEAM) if not pod.finished}

    async def bound(self, count: int) -> set[str]:
        """Wait until exactly some pods have nodes; return their names."""
        found: set[str] = set()
        found: set[str] = set()
        async with asyncio.timeout(HEALED_S):
            while len(found) != count:
                await asyncio.sleep(POLL_S)
                found = {name for name, pod in (await self.pods()).items() if pod.spec.node_name}
        return found

    async def emptied(self) -> None:
        """Delete all pods, those without a node first, and wait until they are gone.

        The deletion of a pod that is bound at the same moment is refused: it was to be deleted without grace.
        """
        found = await self.pods()
        for name in sorted(found, key=lambda name: found[name].spec.node_name):
            await self.api.request("DELETE", PODS.path(namespace=TEAM, name=name), body={"gracePeriodSeconds": 1})
        async with asyncio.timeout(HEALED_S):
            while await self.pods():  # noqa: ASYNC110 -- it asks the API server
                await asyncio.sleep(POLL_S)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(empty_cluster: Layout) -> AsyncIterator[Cluster]:
    """A cluster with two schedulers and a namespace."""
    async with (
        world.running(empty_cluster, Settings(kills=1)) as made,
        connect(program="tranche-test", kubeconfig=str(empty_cluster.kubeconfig)) as connection,
    ):
        label = {"gpu.scheduling/injection": "enabled"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": label}}
        await asyncio.to_thread(client(empty_cluster).apply, namespace)
        yield Cluster(made, Api(connection))


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_leader_that_dies_between_two_bindings_leaves_no_half_of_a_gang(cluster: Cluster, after: int) -> None:
    """The node is full but for the gang, and a pod of higher rank waits: the gang is completed all the same.

    The other pod's priority is that of the system, with which pods outside of it preempt no others.
    """
    schedulers = cluster.world.schedulers
    for number in range(ROUNDS):
        await cluster.create("fills", cards=CARDS - SIZE)
        await cluster.bound(1)
        members = [f"m{number}-{index}" for index in range(SIZE)]
        # A dry run of each Binding comes first.
        trigger = Trigger(schedulers, "POST", "/binding", skip=SIZE + after - 1)
        async with trigger.armed(send(signal.SIGKILL)):
            await asyncio.gather(*(cluster.create(name, gang=f"g{number}") for name in members))
            async with asyncio.timeout(HEALED_S):
                await trigger.fired.wait()
        assert trigger.victim is not None
        await cluster.create("waits", priority="system-cluster-critical")
        await asyncio.to_thread(trigger.victim.kill)
        await asyncio.to_thread(cluster.world.heal)
        assert await cluster.bound(1 + SIZE) == {"fills", *members}
        await cluster.emptied()
