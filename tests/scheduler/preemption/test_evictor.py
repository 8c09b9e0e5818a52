"""Preemptions on a real API server: what becomes of the victims, of the preemptor, and of other pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.fairness.queue_spec import QueueKey
from cluster.api import Api
from cluster.errors import UnreachableError
from scheduler.metrics.labels import EvictionOutcome
from tests.scheduler.support.evicting import GRACE_S, NODE, OURS, THEIRS, EvictionServer
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    import aiohttp

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(20, 200)


class Losing(Api):
    """An API client that loses the response to its first Eviction."""

    lost = 0

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request."""
        response = await super().request(method, path, **how)
        if path.endswith("/eviction") and not self.lost:
            self.lost += 1
            raise UnreachableError("the connection was cut")
        return response


class Sleeper(Api):
    """An API client that stops right before it sends an Eviction."""

    def __init__(self, api: Api) -> None:
        super().__init__(api._connection)
        self.about_to_send = asyncio.Event()
        self.awake = asyncio.Event()

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request; an Eviction waits until `awake` is set."""
        if path.endswith("/eviction"):
            self.about_to_send.set()
            await self.awake.wait()
        return await super().request(method, path, **how)


class Deleting(Api):
    """An API client that may also delete pods."""

    def __init__(self, api: Api, admin: Api) -> None:
        super().__init__(api._connection)
        self._admin = admin

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Send a request; a deletion is an administrator's."""
        return await (self._admin if method == "DELETE" else super()).request(method, path, **how)


class Counting(Api):
    """An API client that counts the Evictions that it sends."""

    sent = 0

    def open(self, method: str, path: str, **how: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request."""
        self.sent += path.endswith("/eviction")
        return super().open(method, path, **how)


async def test_victims_terminate_and_the_preemptor_is_nominated(server: EvictionServer) -> None:
    """Each victim has its own grace period, and a condition and an event in the words of kube-scheduler."""
    preemptor = await server.pod("important")
    victims = [await server.victim(name) for name in ("a", "b")]
    outcome, evicted = await server.evict(preemptor, *victims)
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, victims)
    assert await server.nominated("important") == NODE
    for victim in victims:
        shown = await server.read(victim.pod.metadata.name)
        assert shown["metadata"]["deletionGracePeriodSeconds"] == GRACE_S
        (condition,) = (each for each in shown["status"]["conditions"] if each["type"] == "DisruptionTarget")
        assert condition["lastTransitionTime"]
        assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
        assert condition["message"] == "nobody: preempting to accommodate a higher priority pod"


async def test_events_name_no_pods_of_other_namespaces(server: EvictionServer) -> None:
    """The owners of both sides learn what happens, and a victim's owner only the UID of the preemptor."""
    preemptor = await server.pod("important")
    victims = [await server.victim(name) for name in ("a", "b")]
    before = await server.events(THEIRS)
    await server.evict(preemptor, *victims)
    new = [note for note in (await server.events(THEIRS))["Preempted"] if note not in before["Preempted"]]
    assert new == [f"Preempted by pod {preemptor.uid} on node {NODE}"] * 2
    assert f"Evicted 2 of 2 pods of lower priority on node {NODE}" in (await server.events(OURS))["Preempting"]


async def test_a_reclaimed_pod_is_told_which_queues_it_is_about(server: EvictionServer) -> None:
    """In its event and in its condition, whose reason is that of any preemption."""
    preemptor, plain = await server.pod("owed"), await server.victim("a")
    victim = msgspec.structs.replace(await server.victim("b"), reclaimed_for=QueueKey("research"))
    await server.evict(preemptor, victim, plain)
    why = f"namespace {THEIRS} has more than its entitlement, and GpuQueue research less"
    notes = await server.events(THEIRS)
    assert f"Evicted for pod {preemptor.uid} on node {NODE}: {why}" in notes["Reclaimed"]
    shown = await server.read("b")
    (condition,) = (each for each in shown["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert condition["reason"] == "PreemptionByScheduler"
    assert condition["message"].endswith(f": {why}")
    note = f"Evicted 2 of 2 pods, 1 of queues above their entitlement, on node {NODE}"
    assert note in (await server.events(OURS))["Preempting"]


async def test_a_budget_of_one_victim_keeps_all_alive(server: EvictionServer, caplog: pytest.LogCaptureFixture) -> None:
    """A budget that appeared a moment ago: the API server answers its dry run with 429, and no pod is evicted."""
    first, guarded, last = [
        await server.victim(name, labels=labels) for name, labels in (("a", {}), ("b", {"app": "guarded"}), ("c", {}))
    ]
    await server.budget("b", app="guarded")
    counting = Counting(server.api._connection)
    outcome, evicted = await server.evict(await server.pod("important"), first, guarded, last, api=counting)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert "disruption budget" in caplog.messages[-1]
    assert all([await server.lives(name) for name in "abc"])
    assert counting.sent <= 3


async def test_a_refusal_by_a_known_budget_costs_nobody_else(server: EvictionServer) -> None:
    """Guarded victims come first."""
    plain = await server.victim("a")
    guarded = await server.victim("b", labels={"app": "guarded"}, is_guarded=True)
    await server.budget("b", app="guarded")
    outcome, evicted = await server.evict(await server.pod("important"), plain, guarded)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert await server.lives("a")


async def test_a_pod_with_two_budgets_is_not_evicted(server: EvictionServer, caplog: pytest.LogCaptureFixture) -> None:
    """The API server supports one at most; it answers with 500, which says nothing certain in general."""
    victim = await server.victim("a", labels={"app": "guarded"})
    for name in "pq":
        await server.budget(name, app="guarded")
    outcome, evicted = await server.evict(await server.pod("important"), victim)
    assert (outcome, evicted) == (EvictionOutcome.UNKNOWN, [])
    assert "more than one PodDisruptionBudget" in caplog.messages[-1]
    assert await server.lives("a")


@pytest.mark.parametrize("budgets", ["p", "pq"])
async def test_victim_of_a_budget_that_never_permits_it_is_deleted_where_it_may_be(
    server: EvictionServer, budgets: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only after its Eviction was refused, with its own grace period, and after the victims of other budgets."""
    last = await server.victim("a", labels={"app": "rigid"}, violates=True)
    guarded = await server.victim("b", is_guarded=True)
    for name in budgets:
        await server.budget(name, app="rigid")
    preemptor = await server.pod("important")
    outcome, evicted = await server.evict(preemptor, last, guarded, api=Deleting(server.api, server.admin))
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, [guarded, last]), caplog.messages[-1]
    shown = await server.read("a")
    assert shown["metadata"]["deletionGracePeriodSeconds"] == GRACE_S
    (condition,) = (each for each in shown["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert condition["lastTransitionTime"]
    assert condition["reason"] == "PreemptionByScheduler"


async def test_without_the_right_to_delete_a_rigid_budget_holds(
    server: EvictionServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the component manifests/rigid-budgets grants it."""
    victim = await server.victim("a", labels={"app": "rigid"}, violates=True)
    await server.budget("p", app="rigid")
    outcome, evicted = await server.evict(await server.pod("important"), victim)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert "cannot delete resource" in caplog.messages[-1]
    assert await server.lives("a")


async def test_a_former_leader_deletes_nobody(server: EvictionServer, caplog: pytest.LogCaptureFixture) -> None:
    """The Eviction that comes first is refused for its token, not for the budget."""
    old, victim = server.token, await server.victim("a", labels={"app": "rigid"}, violates=True)
    await server.budget("p", app="rigid")
    await server.lead()
    outcome, evicted = await server.evict(await server.pod("important"), victim, token=old)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert "does not lead any more" in caplog.messages[-1]


async def test_a_recreated_pod_is_not_evicted(server: EvictionServer) -> None:
    """It has the name of the victim and another UID; the victim is gone, so the next one follows."""
    old = await server.victim("a")
    await server.delete("a", namespace=THEIRS)
    meta = msgspec.structs.replace(old.pod.metadata, name="never-seen")
    gone = msgspec.structs.replace(old, pod=msgspec.structs.replace(old.pod, metadata=meta))
    other = await server.victim("b")
    await server.victim("a")
    outcome, evicted = await server.evict(await server.pod("important"), old, gone, other)
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, [other])
    assert await server.lives("a")


async def test_a_lost_response_costs_nothing(server: EvictionServer) -> None:
    """The Eviction is sent again: the victim keeps its grace period, and its condition names the preemption."""
    victim = await server.victim("a")
    losing = Losing(server.api._connection)
    outcome, evicted = await server.evict(await server.pod("important"), victim, api=losing)
    assert (outcome, evicted, losing.lost) == (EvictionOutcome.EVICTED, [victim], 1)
    shown = await server.read("a")
    assert shown["metadata"]["deletionGracePeriodSeconds"] == GRACE_S
    reasons = [each["reason"] for each in shown["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert reasons == ["PreemptionByScheduler"]


async def test_a_former_leader_evicts_nobody(server: EvictionServer, caplog: pytest.LogCaptureFixture) -> None:
    """The API server itself refuses the token of an earlier term."""
    old, victim = server.token, await server.victim("a")
    await server.lead()
    outcome, evicted = await server.evict(await server.pod("important"), victim, token=old)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert f"the scheduler with token {old} does not lead any more" in caplog.messages[-1]
    assert await server.lives("a")


async def test_deposed_leaders_evict_nobody(server: EvictionServer, caplog: pytest.LogCaptureFixture) -> None:
    """In each round one stops right before its Eviction, another takes over and evicts, and the first continues."""
    preemptor, victim = await server.pod("important"), await server.victim("a")
    for _ in range(ROUNDS):
        sleeper = Sleeper(server.api)
        late = asyncio.create_task(server.evict(preemptor, victim, api=sleeper))
        await sleeper.about_to_send.wait()
        await server.lead()
        sleeper.awake.set()
        outcome, _ = await late
        assert outcome is EvictionOutcome.REFUSED
        assert "does not lead any more" in caplog.messages[-1]
    assert await server.lives("a")


@pytest.mark.parametrize("is_recreated", [True, False])
async def test_nobody_is_evicted_for_a_pod_that_is_gone(server: EvictionServer, is_recreated: bool) -> None:  # noqa: FBT001
    """The nomination comes first, and has the UID of the preemptor."""
    preemptor, victim = await server.pod("important"), await server.victim("a")
    await server.delete("important", namespace=OURS)
    if is_recreated:
        await server.pod("important")
    outcome, _ = await server.evict(preemptor, victim)
    assert outcome is EvictionOutcome.GONE
    assert await server.lives("a")
    if is_recreated:
        assert await server.nominated("important") == ""


async def test_only_our_own_nomination_is_cleared(server: EvictionServer) -> None:
    """Another one, which kube-scheduler or a later leader wrote, stays."""
    pod = await server.pod("important")
    await server.evict(pod)
    evictor = server.evictor()
    assert await evictor.clear_nomination(pod, "another")
    assert await server.nominated("important") == NODE
    assert await evictor.clear_nomination(pod, NODE)
    assert await server.nominated("important") == ""
    assert await evictor.clear_nomination(pod, NODE)


async def test_the_nomination_of_a_recreated_pod_is_not_cleared(server: EvictionServer) -> None:
    """It has the name and another UID, and a nomination of its own."""
    old = await server.pod("important")
    await server.delete("important", namespace=OURS)
    assert await server.evictor().clear_nomination(old, NODE)
    await server.evict(await server.pod("important"))
    assert await server.evictor().clear_nomination(old, NODE)
    assert await server.nominated("important") == NODE
