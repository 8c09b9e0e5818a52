"""Whatever dies, freezes or takes over: a card has one pod, a pod its Leases, and a Lease a live pod."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from allocation import names
from allocation.wire import record
from chaos import world
from chaos.settings import STEADY_NODES, Settings
from cluster.api import Api
from cluster.connect import connect
from cluster.lease import Lease
from cluster.resource import GPU_CLAIMS, LEASES, PODS
from lab import fleet
from lab.client import client
from scheduler.leases.device_lease import DeviceLease
from scheduler.objects import Pod
from tests.support.depth import repetitions
from tests.support.patience import POLL_S
from tests.system.support.triggers import Trigger, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.world import World
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio(loop_scope="module")]
RACES = repetitions(5, 50)
"""Rounds of two pods and one card; a takeover every `EACH` of them."""
EACH = RACES // 5
KILLS = 1
"""How often the leader is killed after each of its writes."""
FREEZES = repetitions(1, 3)
"""How often the leader is frozen between the Leases and the Binding of a pod."""
HEALED_S = 70.0
TEAMS = ("team-a", "team-b")
CARD = fleet.card(STEADY_NODES[0], 0)
WRITES = {
    "the first Lease": ("POST", "/leases", 0),
    "the second Lease": ("POST", "/leases", 1),
    "the Binding": ("POST", "/binding", 0),
    "the deletion of a Lease": ("DELETE", "/leases/gpu-", 0),
}


class Cluster:
    """The cluster with two schedulers, and what the API server shows of pods and Leases."""

    def __init__(self, made: World, api: Api) -> None:
        self.world = made
        self.api = api

    async def create(self, name: str, *, namespace: str = TEAMS[0], cards: int, uuid: str = "") -> None:
        """Create a pod with the claim for this number of exclusive cards."""
        annotations = {names.CLAIM: f"cards-{cards}", **({names.USE_UUIDS: uuid} if uuid else {})}
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(cards)}}}
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [container]}}
        await self.api.create(PODS, body, namespace=namespace)

    async def delete(self, pod: Pod) -> None:
        """Delete a pod with the shortest grace period that a pod with a card may have."""
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name)
        await self.api.request("DELETE", path, body={"gracePeriodSeconds": 1})

    async def pods(self) -> list[Pod]:
        """Return the live pods of both teams."""
        found = [await self.api.list(PODS, Pod, namespace=team) for team in TEAMS]
        return [pod for pods in found for pod in pods if not pod.finished]

    async def leases(self) -> list[DeviceLease]:
        """Return the Leases of cards."""
        found = await self.api.list(LEASES, Lease, namespace=names.SYSTEM_NAMESPACE)
        return [lease for lease in map(DeviceLease.of, found) if lease is not None]

    async def problems(self) -> list[str]:
        """Return what is not yet healed; no card may ever have two pods."""
        pods, leases = await self.pods(), await self.leases()
        uids, holders = {pod.uid for pod in pods}, {(lease.holder, lease.card) for lease in leases}
        found = [f"Lease {lease.name} has no live holder" for lease in leases if lease.holder not in uids]
        owners: dict[str, str] = {}
        for pod in pods:
            allocation = record.of_annotations(pod.metadata.annotations)
            if not pod.spec.node_name or allocation is None:
                continue
            for share in allocation.containers["main"]:
                assert owners.setdefault(share.uuid, str(pod)) == str(pod), "a card has two pods"
                if (pod.uid, share.uuid) not in holders:
                    found.append(f"pod {pod} has no Lease of card {share.uuid}")
        return found

    async def healed(self, *, pods: int) -> list[Pod]:
        """Wait until nothing is left to heal and exactly `pods` pods have a node, and return these."""
        bound: list[Pod] = []
        problems = ["not looked at yet"]
        try:
            async with asyncio.timeout(HEALED_S):
                while problems or len(bound) != pods:
                    await asyncio.sleep(POLL_S)
                    problems = await self.problems()
                    bound = [pod for pod in await self.pods() if pod.spec.node_name]
        except TimeoutError:
            pytest.fail(f"after {HEALED_S:g} s: {len(bound)} pods have a node, {problems}")
        return bound

    async def emptied(self) -> None:
        """Delete all pods, those without a node first, and wait until no Lease is left."""
        for pod in sorted(await self.pods(), key=lambda pod: pod.spec.node_name):
            await self.delete(pod)
        async with asyncio.timeout(HEALED_S):
            while await self.pods() or await self.leases():  # noqa: ASYNC110 -- it asks the API server
                await asyncio.sleep(POLL_S)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(empty_cluster: Layout) -> AsyncIterator[Cluster]:
    """A cluster with two schedulers, two namespaces and claims for one and for two cards."""
    async with (
        world.running(empty_cluster, Settings(kills=1)) as made,
        connect(program="tranche-test", kubeconfig=str(empty_cluster.kubeconfig)) as connection,
    ):
        label = {"gpu.scheduling/injection": "enabled"}
        teams = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}} for name in TEAMS
        ]
        await asyncio.to_thread(client(empty_cluster).apply, *teams)
        api = Api(connection)
        for team in TEAMS:
            for count in (1, 2):
                head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind}
                claim = {**head, "metadata": {"name": f"cards-{count}"}, "spec": {"devices": {"count": count}}}
                await api.create(GPU_CLAIMS, claim, namespace=team)
        yield Cluster(made, api)


async def test_of_two_schedulers_pods_one_has_the_lease(cluster: Cluster) -> None:
    """Two namespaces, one card, and schedulers that take over from each other: the pod with the Lease is bound."""
    for number in range(RACES):
        if number % EACH == 0:
            await take_over(cluster, number // EACH)
        await asyncio.gather(*(cluster.create(f"p{number}", namespace=team, cards=1, uuid=CARD) for team in TEAMS))
        for _ in TEAMS:
            (winner,) = await cluster.healed(pods=1)
            (lease,) = await cluster.leases()
            assert (lease.holder, lease.card) == (winner.uid, CARD)
            assert lease.name == f"gpu-{STEADY_NODES[0]}-0"
            await cluster.delete(winner)
            async with asyncio.timeout(HEALED_S):
                while winner.uid in {pod.uid for pod in await cluster.pods()}:  # noqa: ASYNC110 -- it asks the API
                    await asyncio.sleep(POLL_S)
        await cluster.emptied()


async def take_over(cluster: Cluster, which: int) -> None:
    """Kill one scheduler, freeze one until it has lost its leadership, or kill both."""
    victim = cluster.world.schedulers[which % 2]
    if which % 3 == 1:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * Settings(kills=1).timing.election.lease_seconds)  # the duration of the fault
        victim.signal(signal.SIGCONT)
    else:
        victims = [victim] if which % 3 == 0 else cluster.world.schedulers
        await asyncio.gather(*(asyncio.to_thread(each.kill) for each in victims))
    await asyncio.to_thread(cluster.world.heal)


async def test_a_leader_that_dies_after_any_write_leaves_nothing_behind(cluster: Cluster) -> None:
    """It is killed when the API server has executed the write, before it knows: the next leader puts it right."""
    schedulers = cluster.world.schedulers
    for number in range(KILLS):
        for which, (method, path, skip) in WRITES.items():
            name = f"p{number}-{method.lower()}-{skip}-{path.rpartition('/')[2].strip('-')}"
            if method == "DELETE":
                await cluster.create(name, cards=2)
                await cluster.healed(pods=1)
            async with Trigger(schedulers, method, path, skip=skip).armed(send(signal.SIGKILL)) as trigger:
                if method == "DELETE":
                    (pod,) = await cluster.pods()
                    await cluster.delete(pod)
                else:
                    await cluster.create(name, cards=2)
                async with asyncio.timeout(HEALED_S):
                    await trigger.fired.wait()
            assert trigger.victim is not None, which
            await asyncio.to_thread(trigger.victim.kill)
            await asyncio.to_thread(cluster.world.heal)
            await cluster.healed(pods=0 if method == "DELETE" else 1)
            await cluster.emptied()


async def test_a_leader_that_freezes_between_leases_and_binding_binds_nothing(cluster: Cluster) -> None:
    """Another leader takes the Leases over and binds the pod; the first continues, and its Binding is refused."""
    schedulers = cluster.world.schedulers
    for number in range(FREEZES):
        async with Trigger(schedulers, "POST", "/leases", skip=1).armed(send(signal.SIGSTOP)) as trigger:
            await cluster.create(f"p{number}", cards=2)
            async with asyncio.timeout(HEALED_S):
                await trigger.fired.wait()
            before = {lease.token for lease in await cluster.leases()}
            (bound,) = await cluster.healed(pods=1)
        after = {lease.token for lease in await cluster.leases()}
        assert before.isdisjoint(after), "the next leader created its own Leases"
        assert trigger.victim is not None
        trigger.victim.signal(signal.SIGCONT)
        await asyncio.to_thread(cluster.world.heal)
        await asyncio.to_thread(trigger.victim.until_ready)
        (again,) = await cluster.healed(pods=1)
        assert again.metadata.annotations[names.ALLOCATION] == bound.metadata.annotations[names.ALLOCATION]
        await cluster.emptied()
