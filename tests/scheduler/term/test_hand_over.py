"""A term whose loop hands pods with `resourceClaims` over to kube-scheduler: both schedule, on one ledger.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/optional_parts.py` that connects its part.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from allocation.settings import AllocationSettings
from allocation.steps import finish
from cluster.errors import ApiError
from scheduler.dra import handed_over_pods
from scheduler.extender import refused_nodes
from scheduler.filters import resources
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.objects import Pod
from scheduler.settings import KubeSchedulerSettings
from scheduler.state.running_allocation import running_allocation
from tests.scheduler.support import builders as pods
from tests.scheduler.support.handing_over import (
    CLAIMS,
    bound,
    extender_of,
    hand_over,
    handing_over,
    is_retried,
    offered,
)
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading

CPU_OF_A_NODE = 64


def needing_cpu(name: str, cpu: int, memory: int = 100) -> dict[str, Any]:
    """Return the containers of a pod with a share of a card that needs CPU as well."""
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "cpu": str(cpu)}
    return {"containers": [{"name": name, "resources": {"limits": amounts, "requests": amounts}}]}


async def test_each_pod_has_one_scheduler(cluster: Cluster) -> None:
    """The loop leaves pods with claims alone, and /bind those of the loop; both are counted in one ledger."""
    async with handing_over(cluster):
        cluster.pod("claims", memory=None, **CLAIMS)
        cluster.pod("plain", memory=None)
        await cluster.placed("plain")
        state = cluster.term.state
        assert [*state.handed_over] == ["uid-claims"]
        assert extender_of(cluster).is_trusted
        await cluster.until(lambda: len(state.queue) == 0, "empty queue")
        assert await offered(cluster, "claims", "n0") == ("n0",)
        assert await bound(cluster, "claims") == ""
        await cluster.until(lambda: not state.handed_over, "its end as a waiting pod")
        assert len([*state.ledger.reservations("n0")]) == 2
        cluster.pod("late", memory=None)
        await cluster.waits("late", "CardInsufficientMemory")
        assert "its schedulerName is tranche; ours are tranche-claims" in await bound(cluster, "late")


async def test_cpu_is_assumed_on_both_sides(cluster: Cluster) -> None:
    """A pod that the loop is binding has the CPU of the node already, which kube-scheduler cannot know."""
    cluster.api.held["/pods/plain/binding"] = asyncio.Event()
    async with handing_over(cluster):
        cluster.pod("plain", **needing_cpu("a", CPU_OF_A_NODE))
        await cluster.until(lambda: cluster.term.state.node_cache.is_assumed("uid-plain"), "assumed pod")
        await hand_over(cluster, "claims", **needing_cpu("a", 1))
        assert await offered(cluster, "claims", "n0") == ("n0",)  # what kube-scheduler evaluates itself
        error = await bound(cluster, "claims")
        assert "n0: NodeInsufficientResource: Insufficient cpu" in error
        assert await offered(cluster, "claims", "n0") == ()  # so that its devices are given back
        cluster.api.held["/pods/plain/binding"].set()
        await cluster.placed("plain")
    # The other way round: the loop does not take what a pod of kube-scheduler is getting.
    cluster.end("plain")
    cluster.api.held["/pods/claims/binding"] = asyncio.Event()
    async with handing_over(cluster):
        binding = asyncio.create_task(bound(cluster, "claims"))
        await cluster.until(lambda: cluster.term.state.node_cache.is_assumed("uid-claims"), "assumed pod")
        cluster.pod("second", **needing_cpu("a", CPU_OF_A_NODE))
        await cluster.waits("second", "Insufficient cpu")
        cluster.api.held["/pods/claims/binding"].set()
        assert await binding == ""


async def test_refused_pod_is_tried_again_in_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else changes after the refusal, so nothing else would have kube-scheduler try it."""
    monkeypatch.setattr(refused_nodes, "_SHORTEST_SECONDS", 0.2)
    monkeypatch.setattr(refused_nodes, "_LONGEST_SECONDS", 0.2)
    cluster.api.on_write = refuse
    async with handing_over(cluster):
        await hand_over(cluster, "claims")
        assert "422 Invalid" in await bound(cluster, "claims")
        assert await offered(cluster, "claims", "n0") == ()
        await cluster.until(lambda: is_retried(cluster, "claims"), "another attempt")


def refuse(_method: str, path: str) -> None:
    """Refuse every Binding."""
    if path.endswith("/binding"):
        raise ApiError(request=path, status=422, reason="Invalid", message="in this test")


async def test_silent_kube_scheduler_is_said(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the condition of the pod, by an event, in its explanation and by a metric; pods of the loop go on."""
    monkeypatch.setattr(handed_over_pods, "_PERIOD_SECONDS", 0.01)
    clock = pods.Clock()
    lease = KubeSchedulerLease(cluster.api, KubeSchedulerSettings(lease_name="l"), clock=clock)
    cluster.pod("claims", **CLAIMS)
    async with handing_over(cluster, kube_scheduler=lease):

        def answer() -> str:
            explained = finish(cluster.term.queries.explain(NAMESPACE, "claims"))
            assert explained is not None
            return " ".join((explained.answer, *explained.hints))

        assert "would go to n0" in answer()
        assert "its resourceClaims, which are not evaluated here" in answer()
        clock.now += 30
        await cluster.waits("claims", "KubeSchedulerSilent: no kube-scheduler places pods with resourceClaims")
        await cluster.event("FilteringFailed", "Lease kube-system/l")
        assert answer().startswith("waits: KubeSchedulerSilent")
        cluster.pod("plain")
        await cluster.placed("plain")


async def test_pod_is_held_once_nothing_is_handed_over_any_more(cluster: Cluster) -> None:
    """Its scheduler cannot be changed: the reason says what to do."""
    cluster.pod("claims", **CLAIMS)
    async with leading(cluster):
        await cluster.waits("claims", "allocation.resource_claims) and create this one again")
        assert cluster.term.extender is None


class StaleKubeScheduler:
    """Brings pods to any node that takes their cards; it knows nothing of the pods that are being bound."""

    def __init__(self, cluster: Cluster, chance: random.Random, nodes: tuple[str, ...]) -> None:
        self.waiting: dict[str, None] = {}
        self.bound = 0
        self._cluster = cluster
        self._chance = chance
        self._nodes = nodes

    async def run(self) -> None:
        """Try one pod after the other."""
        while True:
            await asyncio.sleep(0)
            for name in tuple(self.waiting):
                await self._try(name)

    async def _try(self, name: str) -> None:
        if self._cluster.term.informers.pods.get(name, NAMESPACE) is None:
            return
        found = await offered(self._cluster, name, *self._nodes)
        if found and not await bound(self._cluster, name, self._chance.choice(found)):
            self.waiting.pop(name, None)
            self.bound += 1


def refuse_some(cluster: Cluster) -> None:
    """Let the API server refuse every seventh Binding."""
    count = itertools.count()

    def refuse_seventh(method: str, path: str) -> None:
        if path.endswith("/binding") and next(count) % 7 == 3:
            refuse(method, path)

    cluster.api.on_write = refuse_seventh


@pytest.mark.parametrize("seed", range(4))
async def test_two_schedulers_give_nothing_twice(seed: int) -> None:
    """Random pods, ends and refusals on nodes that are nearly full: no card and no CPU beyond what there is."""
    chance, cluster, nodes = random.Random(seed), Cluster(), ("n0", "n1", "n2")  # noqa: S311 -- no secret
    for name in nodes:
        cluster.node(name)
    refuse_some(cluster)
    async with handing_over(cluster, concurrent_binds=4):
        other = StaleKubeScheduler(cluster, chance, nodes)
        bringing = asyncio.create_task(other.run())
        of_the_loop = 0
        for number in range(150):
            name, memory, cpu = f"p{number}", chance.choice((200, 400, 900)), chance.choice((1, 20, 40))
            if number % 2:
                other.waiting[name] = None
            cluster.pod(name, **(CLAIMS if number % 2 else {}), **needing_cpu("a", cpu, memory))
            await asyncio.sleep(chance.choice((0, 0.002)))
            running = bound_pods(cluster)
            check(running)
            if len(running) > 8:
                ended = chance.choice(running)
                of_the_loop += ended.spec.scheduler_name == "tranche"
                cluster.end(ended.metadata.name)
        assert not bringing.done()
        bringing.cancel()
    assert min(other.bound, of_the_loop) > 10


def bound_pods(cluster: Cluster) -> list[Pod]:
    """Return the pods that have a node, by the API server."""
    return [msgspec.convert(each, Pod) for each in cluster.api.all("pods") if each["spec"].get("nodeName")]


def check(running: list[Pod]) -> None:
    """Compare what the pods of each node have with what there is."""
    cpu, cards = Counter[str](), Counter[str]()
    for pod in running:
        cpu[pod.spec.node_name] += resources.requests(pod, ours=())["cpu"] // 1000
        allocated = running_allocation(pod, AllocationSettings())
        assert allocated is not None
        for charge in allocated[1]:
            cards[charge.uuid] += charge.memory_mib
    assert all(used <= CPU_OF_A_NODE for used in cpu.values()), cpu
    assert all(used <= 1000 for used in cards.values()), cards
