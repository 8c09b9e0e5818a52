"""Two schedulers, two namespaces and one card: each time exactly one pod gets it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from chaos import world
from chaos.checker import Checker
from chaos.settings import STEADY_NODES, Settings
from chaos.settling import settle
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import PODS
from lab import fleet
from lab.client import client
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from chaos.books import Books
    from chaos.world import World
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(5, 200)
EACH = ROUNDS // 5
TEAMS = ("team-a", "team-b")
CARD = fleet.card(STEADY_NODES[0], 0)


def pod(number: int) -> dict[str, Any]:
    """Return a pod that requests the whole card."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": f"p{number}", "annotations": {"nvidia.com/use-gpuuuid": CARD}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def test_exactly_one_of_two_namespaces_gets_the_card(empty_cluster: Layout) -> None:
    """Round for round, while the schedulers take over from each other after a kill, a freeze, or a kill of both."""
    async with (
        world.running(empty_cluster, Settings(kills=1)) as cluster,
        connect(program="tranche-test", kubeconfig=str(empty_cluster.kubeconfig)) as connection,
    ):
        label = {"gpu.scheduling/injection": "enabled"}
        teams = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}} for name in TEAMS
        ]
        await asyncio.to_thread(client(empty_cluster).apply, *teams)
        api = Api(connection)
        checker = Checker(api, patience_seconds=PATIENCE_S, lease_seconds=PATIENCE_S)
        async with checker.watching():
            for number in range(ROUNDS):
                if number % EACH == 0:
                    await takeover(cluster, number // EACH)
                await asyncio.gather(*(api.create(PODS, pod(number), namespace=team) for team in TEAMS))
                (winner,) = await bound(checker.books)
                loser = next(f"{team}/p{number}" for team in TEAMS if f"{team}/p{number}" != winner)
                await delete(api, winner)
                assert await bound(checker.books, but=winner) == [loser]
                await delete(api, loser)
                await gone(checker.books)
            assert await settle(cluster, checker.books) == []
        assert checker.books.violations == []
        assert checker.books.placed == ROUNDS * len(TEAMS)


async def takeover(cluster: World, which: int) -> None:
    """Kill one scheduler, freeze one until it has lost its Lease, or kill both."""
    victim = cluster.schedulers[which % 2]
    if which % 3 == 0:
        await asyncio.to_thread(victim.kill)
    elif which % 3 == 1:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * Settings(kills=1).timing.election.lease_seconds)  # the duration of the fault
        victim.signal(signal.SIGCONT)
    else:
        await asyncio.gather(*(asyncio.to_thread(each.kill) for each in cluster.schedulers))
    await asyncio.to_thread(cluster.heal)


async def bound(books: Books, *, but: str = "") -> list[str]:
    """Wait until a pod other than `but` has the card; return the pods that have it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (names := [name for name in books.bound() if name != but]):  # noqa: ASYNC110 -- the books have no events
            await asyncio.sleep(0.02)
    return names


async def gone(books: Books) -> None:
    """Wait until no pod has the card."""
    async with asyncio.timeout(PATIENCE_S):
        while books.bound():  # noqa: ASYNC110 -- the books have no events
            await asyncio.sleep(0.02)


async def delete(api: Api, name: str) -> None:
    """Delete a pod with the shortest grace period that a pod with a card may have."""
    namespace, _, pod_name = name.partition("/")
    await api.request("DELETE", PODS.path(namespace=namespace, name=pod_name), body={"gracePeriodSeconds": 1})
