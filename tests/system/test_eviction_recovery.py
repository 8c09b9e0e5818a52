"""The leader dies or freezes at an Eviction: exactly the pods go that have to, and none for a pod that is gone."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from chaos import world
from chaos.settings import STEADY_NODES, Settings
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import PODS
from lab.client import client
from scheduler.objects import Pod
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S, POLL_S
from tests.system.support.triggers import Trigger, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.world import World
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio(loop_scope="module")]
NAMESPACE = world.NAMESPACE
CARDS = 8
FREEZES = repetitions(1, 3)
"""How often the leader is frozen before an Eviction."""
WRITES = {
    "the nomination": ("PATCH", "/status", 0, b"nominatedNodeName"),
    "the last dry run": ("POST", "/eviction", 1, b""),
    "the first Eviction": ("POST", "/eviction", 2, b""),
    "the second Eviction": ("POST", "/eviction", 3, b""),
}
"""The writes for two victims: method, path, how many come before it, and what its body contains."""
HIGH = "tests-high"


class Cluster:
    """A cluster with two schedulers, on whose first node pods of priority 0 have all cards."""

    def __init__(self, made: World, api: Api) -> None:
        self.world = made
        self._api = api

    async def create(self, name: str, *, cards: int = 1, priority: str = "", node: str = STEADY_NODES[0]) -> None:
        """Create a pod that asks for whole cards of a node."""
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
        spec = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "priorityClassName": priority,
        }
        await self._api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE)

    async def fill(self) -> None:
        """Let pods of priority 0 take all cards of the node."""
        have = {pod.metadata.name for pod in await self.low()}
        names = [name for name in (f"low-{number}" for number in range(CARDS)) if name not in have]
        for name in names:
            await self.create(name)
        for name in names:
            await self.bound(name)

    async def low(self) -> list[Pod]:
        """Return the pods of priority 0 that run and are not ending."""
        pods = await self._pods()
        return [pod for pod in pods if pod.metadata.name.startswith("low-") and not pod.metadata.deletion_timestamp]

    async def bound(self, name: str) -> None:
        """Wait until a pod has a node."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self._node(name):  # noqa: ASYNC110 -- it asks the API server
                await asyncio.sleep(POLL_S)

    async def remove(self, *names: str) -> None:
        """Delete pods, and wait until they are gone."""
        for name in names:
            await self._api.request("DELETE", PODS.path(namespace=NAMESPACE, name=name))
        async with asyncio.timeout(PATIENCE_S):
            while {*names} & {pod.metadata.name for pod in await self._pods()}:  # noqa: ASYNC110 -- it asks the API server
                await asyncio.sleep(POLL_S)

    async def _node(self, name: str) -> str:
        return (await self._api.get(PODS, Pod, name=name, namespace=NAMESPACE)).spec.node_name

    async def _pods(self) -> list[Pod]:
        return await self._api.list(PODS, Pod, namespace=NAMESPACE)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(empty_cluster: Layout) -> AsyncIterator[Cluster]:
    """A running control plane for pods of two priorities, with a client of the tests."""
    async with (
        world.running(empty_cluster, Settings(kills=1)) as made,
        connect(program="tranche-test", kubeconfig=str(empty_cluster.kubeconfig)) as connection,
    ):
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await asyncio.to_thread(client(empty_cluster).apply, {**head, "metadata": {"name": HIGH}, "value": 1000})
        yield Cluster(made, Api(connection))


async def fires(trigger: Trigger) -> None:
    """Wait until a trigger has acted."""
    async with asyncio.timeout(PATIENCE_S):
        await trigger.fired.wait()


async def test_a_leader_that_dies_at_any_write_of_a_preemption_costs_no_further_victim(cluster: Cluster) -> None:
    """It is killed when the API server has executed the write, before it knows: the next leader evicts who is left."""
    for evicted, (which, (method, path, skip, text)) in zip((0, 0, 1, 2), WRITES.items(), strict=True):
        await cluster.fill()
        trigger = Trigger(cluster.world.schedulers, method, path, skip=skip, text=text)
        async with trigger.armed(send(signal.SIGKILL)):
            await cluster.create("pair", cards=2, priority=HIGH)
            await fires(trigger)
        left = await cluster.low()
        assert trigger.victim is not None
        await asyncio.to_thread(trigger.victim.kill)
        await asyncio.to_thread(cluster.world.heal)
        await cluster.bound("pair")
        assert len(left) == CARDS - evicted, which
        assert len(await cluster.low()) == CARDS - 2, which
        await cluster.remove("pair")


async def test_a_leader_that_freezes_before_an_eviction_evicts_nobody_later(cluster: Cluster) -> None:
    """The pod that preempts is deleted while another scheduler leads; then the Eviction of the first one arrives."""
    for number in range(FREEZES):
        await cluster.fill()
        trigger = Trigger(cluster.world.schedulers, "POST", "/eviction", holds=True)
        async with trigger.armed(send(signal.SIGSTOP)):
            await cluster.create("important", priority=HIGH)
            await fires(trigger)
            await cluster.remove("important")
            await cluster.create(f"elsewhere-{number}", node=STEADY_NODES[1])
            await cluster.bound(f"elsewhere-{number}")
            trigger.released.set()
            async with asyncio.timeout(PATIENCE_S):
                status, body = await trigger.response
        assert (status, "does not lead any more" in body) == (403, True), body
        assert trigger.victim is not None
        trigger.victim.signal(signal.SIGCONT)
        await asyncio.to_thread(cluster.world.heal)
        await asyncio.to_thread(trigger.victim.until_ready)
        assert len(await cluster.low()) == CARDS
