"""Two schedulers, two namespaces, one card: again and again exactly one pod gets it."""

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
from cluster.connection import connect
from cluster.resource import PODS
from lab import fleet, kubectl

if TYPE_CHECKING:
    from chaos.books import Books
    from chaos.world import World
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]
ROUNDS = 200
EACH = 20
PATIENCE_S = 60.0
TEAMS = ("team-a", "team-b")
CARD = fleet.card(STEADY_NODES[0], 0)


def pod(number: int) -> dict[str, Any]:
    """Answer a pod that wants the card, all of it."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": f"p{number}", "annotations": {"nvidia.com/use-gpuuuid": CARD}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def test_exactly_one_of_two_namespaces_gets_the_card(own_layout: Layout) -> None:
    """Two hundred times, while the schedulers take over from one another by kill, freeze and both at once."""
    async with (
        world.running(own_layout, Settings(kills=1)) as place,
        connect(kubeconfig=str(own_layout.kubeconfig)) as connection,
    ):
        label = {"gpu.scheduling/injection": "enabled"}
        teams = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}} for name in TEAMS
        ]
        await asyncio.to_thread(kubectl.apply, own_layout, *teams)
        api = Api(connection)
        checker = Checker(api, patience_seconds=PATIENCE_S)
        async with checker.watching():
            for number in range(ROUNDS):
                if number % EACH == 0:
                    await takeover(place, number // EACH)
                await asyncio.gather(*(api.create(PODS, pod(number), namespace=team) for team in TEAMS))
                (winner,) = await bound(checker.books)
                loser = next(f"{team}/p{number}" for team in TEAMS if f"{team}/p{number}" != winner)
                await delete(api, winner)
                assert await bound(checker.books, but=winner) == [loser]
                await delete(api, loser)
                await gone(checker.books)
            assert await settle(place, checker.books) == []
        assert checker.books.violations == []
        assert checker.books.placed == ROUNDS * len(TEAMS)


async def takeover(place: World, which: int) -> None:
    """Kill one, freeze one until it has lost its Lease and let it wake up, or kill both."""
    victim = place.schedulers[which % 2]
    if which % 3 == 0:
        await asyncio.to_thread(victim.kill)
    elif which % 3 == 1:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * Settings(kills=1).caution.election.lease_seconds)  # the fault itself
        victim.signal(signal.SIGCONT)
    else:
        await asyncio.gather(*(asyncio.to_thread(each.kill) for each in place.schedulers))
    await asyncio.to_thread(place.heal)


async def bound(books: Books, *, but: str = "") -> list[str]:
    """Wait until somebody has the card, other than `but`; answer who has it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [name for name in books.bound() if name != but]):  # noqa: ASYNC110 -- the books tell nobody
            await asyncio.sleep(0.02)
    return found


async def gone(books: Books) -> None:
    """Wait until nobody has it."""
    async with asyncio.timeout(PATIENCE_S):
        while books.bound():  # noqa: ASYNC110 -- the books tell nobody
            await asyncio.sleep(0.02)


async def delete(api: Api, name: str) -> None:
    """Delete a pod at once."""
    namespace, _, pod_name = name.partition("/")
    await api.request("DELETE", PODS.path(namespace=namespace, name=pod_name), body={"gracePeriodSeconds": 0})
