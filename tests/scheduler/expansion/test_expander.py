"""The requests for nodes on an API server in memory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import PLACEHOLDER, SYSTEM_NAMESPACE
from allocation.reasons import NodeReason
from cluster.events import Recorder
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion import placeholders
from scheduler.expansion.expander import Expander
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.preemption import waiting_pod
from tests.scheduler.expansion.scene import POOL, TEMPLATE
from tests.scheduler.support.builders import Clock, node, pod, state, status
from tests.scheduler.support.driving import Driver
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.memory_api import MemoryApi, refusing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

CREATED = 1767225600.0
"""When the objects of the API server in memory are created."""


class Cluster:
    """The expander over a state, and the placeholders of the API server, which are shown to it after each look."""

    def __init__(self, *, templates: Collection[Any] = (TEMPLATE,), **more: Any) -> None:
        self.api, self.driver, self.metrics = MemoryApi(), Driver(state(clock=Clock())), Metrics()
        self.now = CREATED
        queue = self.driver.state.queue
        self.expander = Expander(
            fenced(self.api, token="7/leader"),  # noqa: S106 -- the token of a term is not a secret
            self.driver.state,
            waiting=waiting_pod.of_queue(self.driver.state),
            still_waits=lambda pod: queue.get(pod.uid) is not None,
            recorder=Recorder(self.api, component="test", instance="test"),
            metrics=self.metrics,
            settings=msgspec.convert({"enabled": True, "templates": templates, **more}, ExpanderSettings),
            unix=lambda: self.now,
        )

    async def look(self, seconds: float = 5.0) -> set[str]:
        """Let time pass, and let the expander look; return the names of the placeholders that there are then."""
        self.now += seconds
        await self.driver.settle()
        await self.expander.look()
        await self.expander.placeholders.delete_ended()
        there = {each["metadata"]["name"] for each in self.api.all("pods")}
        for name in self.expander.placeholders._shown.keys() - there:
            self.expander.placeholders.drop_pod(self.expander.placeholders._shown[name])
        for each in self.api.all("pods"):
            self.expander.placeholders.set_pod(msgspec.convert(each, Pod))
        await self.driver.settle()
        return there

    async def until_asked(self) -> set[str]:
        """Let the expander look until pods have been collected for long enough."""
        for _ in range(3):
            there = await self.look()
        return there

    def place(self, name: str, group: str) -> None:
        """Create a placeholder, as an earlier leader has."""
        metadata = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": {PLACEHOLDER: group}}
        self.expander.placeholders.set_pod(
            msgspec.convert(self.api.put("pods", {"metadata": metadata, "spec": {}}), Pod)
        )

    def come(self, name: str) -> None:
        """Let a node of the group come, with an agent."""
        labels = {"kubernetes.io/hostname": name, **POOL}
        created = "2026-01-01T00:00:00Z"
        made, report = node(name, metadata={"name": name, "labels": labels, "creationTimestamp": created}), status(name)
        self.driver.state.set_node(made)
        self.expander.placeholders.set_node(made)
        self.driver.state.agent_reports.set(report)
        self.expander.placeholders.set_node(report)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the expander for the block."""
        task = asyncio.create_task(self.expander.run())
        try:
            yield
        finally:
            task.cancel()

    async def until_nothing_is_asked(self) -> None:
        """Wait until there is no placeholder."""
        for _ in range(300):
            if not self.api.all("pods"):
                return
            await asyncio.sleep(0.01)
        pytest.fail("a node is still asked for after 3 seconds")

    def ended(self, outcome: str) -> float:
        """Return how many requests have ended so."""
        return self.metrics.expansions.labels(outcome)._value.get()  # type: ignore[no-any-return]


def whole(name: str) -> Pod:
    """Return a pod that needs a node of its own."""
    limits = {"nvidia.com/gpu": "2"}
    return pod(name, containers=[{"name": "main", "resources": {"limits": limits, "requests": limits}}])


async def test_pods_are_collected_for_ten_seconds_before_a_node_is_asked_for() -> None:
    """So that those that come together share it; the names of requests are those of one term."""
    cluster = Cluster()
    cluster.driver.add(pod("p0", memory=1000))
    assert await cluster.look() == set()
    cluster.driver.add(pod("p1", memory=1000))
    assert await cluster.look() == set()
    assert await cluster.look() == {"tranche-node-7-1"}
    assert await cluster.look() == {"tranche-node-7-1"}
    cluster.come("n1")
    assert (await cluster.look(), cluster.ended("answered")) == (set(), 1)
    assert len(cluster.driver.running) == 2


async def test_one_node_answers_one_request() -> None:
    """The other request goes on until its own node comes."""
    cluster = Cluster()
    cluster.driver.add(whole("p0"), whole("p1"))
    assert len(await cluster.until_asked()) == 2
    cluster.come("n1")
    assert len(await cluster.look()) == 1
    assert len(await cluster.look()) == 1
    cluster.come("n2")
    assert (await cluster.look(), len(cluster.driver.running)) == (set(), 2)


async def test_node_that_was_there_before_a_request_does_not_answer_it() -> None:
    """Also if both were created in the same second, which is all that the API server notes."""
    cluster = Cluster()
    cluster.come("n0")
    cluster.driver.add(whole("p0"))
    await cluster.driver.settle()
    cluster.driver.add(whole("p1"))
    assert (len(await cluster.until_asked()), len(cluster.driver.running)) == (1, 1)
    assert (len(await cluster.look()), cluster.ended("answered")) == (1, 0)


async def test_request_ends_when_no_pod_waits_for_its_node() -> None:
    """After a minute: another pod may come and use it."""
    cluster = Cluster()
    waiting = whole("p")
    cluster.driver.add(waiting)
    assert len(await cluster.until_asked()) == 1
    cluster.driver.state.drop_pod(waiting)
    assert len(await cluster.look()) == 1
    assert len(await cluster.look(59.0)) == 1
    assert (await cluster.look(1.0), cluster.ended("idle")) == (set(), 1)


async def test_request_ends_when_no_node_comes_in_time() -> None:
    """Ten minutes after its creation."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    assert len(await cluster.look(CREATED + 599 - cluster.now)) == 1
    assert (await cluster.look(1.0), cluster.ended("expired")) == (set(), 1)
    assert await cluster.until_asked() == set()
    assert "no node came within 10 minutes" in cluster.expander.note("uid-p")


async def test_requests_of_unknown_groups_count_as_nodes_on_their_way() -> None:
    """An earlier leader made them; there are never more than 15 in all."""
    cluster = Cluster()
    for number in range(14):
        cluster.place(f"old-{number}", "gone")
    cluster.driver.add(whole("p0"), whole("p1"))
    assert len(await cluster.until_asked()) == 15
    assert "15 nodes are on their way" in cluster.expander.note("uid-p1")


async def test_pod_that_is_being_decided_keeps_what_was_promised() -> None:
    """While it is popped from the queue it is not among those that fit nowhere; it has no node yet either."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    queue = cluster.driver.state.queue
    (entry,) = queue.take(["uid-p"])
    assert entry.place == "binding"
    cluster.now += 5.0
    await cluster.expander.look()
    assert cluster.expander.planner.in_flight.promises.keys() == {"uid-p"}
    assert "PreScheduled" in cluster.expander.note("uid-p")


async def test_node_is_requested_by_its_cpu_where_no_resource_names_its_cards() -> None:
    """Nine tenths of it, so that no node has room that another pod uses; or what the pod itself needs, if that is more.

    Karpenter waits for ever until a node advertises an extended resource that was requested for it.
    """
    cluster = Cluster(resource="")
    cluster.driver.add(whole("p"))
    await cluster.until_asked()
    (asked,) = cluster.api.all("pods")
    resources = asked["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {}, "requests": {"cpu": "57600m", "memory": "0"}}


@pytest.mark.parametrize(("advertised", "limits"), [("2", {"nvidia.com/gpu": "2"}), ("8", {})])
async def test_node_is_requested_by_its_cpu_where_cards_are_advertised_by_slots(
    advertised: str, limits: dict[str, str]
) -> None:
    """An autoscaler would find two of eight on a node whose two cards are full; nodes of other groups do not matter."""
    cluster = Cluster()
    plugin = {"allocatable": {**TEMPLATE["allocatable"], "nvidia.com/gpu": advertised}}
    cluster.driver.state.set_node(node("full", metadata={"name": "full", "labels": POOL}, status=plugin))
    other = {"allocatable": {**TEMPLATE["allocatable"], "nvidia.com/gpu": "80"}}
    cluster.driver.state.set_node(node("other", metadata={"name": "other", "labels": {}}, status=other))
    cluster.driver.add(whole("p"))
    await cluster.until_asked()
    (asked,) = cluster.api.all("pods")
    assert asked["spec"]["containers"][0]["resources"]["limits"] == limits


async def test_request_that_somebody_deleted_is_made_again() -> None:
    """Under another name: the pod still waits."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    (name,) = await cluster.until_asked()
    cluster.api.remove("pods", name, SYSTEM_NAMESPACE)
    await cluster.look()
    assert await cluster.look() == {"tranche-node-7-2"}


async def test_node_is_closed_until_the_request_for_it_has_ended() -> None:
    """An autoscaler that saw both the pods there and the placeholder would bring another node for the placeholder."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    cluster.come("n1")
    await cluster.driver.settle()
    closed = cluster.driver.state.closed_nodes.now()
    assert (closed["n1"].code, len(cluster.driver.running)) == (NodeReason.NodeRequestOpen, 0)
    assert await cluster.look() == set()
    assert (dict(closed), len(cluster.driver.running)) == ({}, 1)


async def test_node_opens_when_the_request_for_it_cannot_be_deleted() -> None:
    """Pods would wait for nothing else; a placeholder that stays costs a node at most."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    cluster.come("n1")
    cluster.api.on_write = refusing("/pods/")
    assert (len(await cluster.look()), len(cluster.driver.running)) == (1, 1)


async def test_node_opens_when_somebody_else_deletes_the_request_for_it() -> None:
    """Its pods get their places there, and no other node is asked for."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    (name,) = await cluster.until_asked()
    cluster.come("n1")
    cluster.api.remove("pods", name, SYSTEM_NAMESPACE)
    cluster.expander.placeholders.drop_pod(cluster.expander.placeholders._shown[name])
    await cluster.driver.settle()
    assert (len(cluster.driver.running), await cluster.look()) == (1, set())


async def test_request_ends_as_its_node_comes_between_two_looks() -> None:
    """Looks are five seconds apart, and the pods of a node that has come do not wait for the next one."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    async with cluster.running():
        await asyncio.sleep(0.1)
        cluster.come("n1")
        await cluster.until_nothing_is_asked()
        assert not cluster.driver.state.closed_nodes.now()
    assert cluster.ended("answered") == 1


async def test_request_ends_as_its_node_comes_while_it_is_decided_about_pods() -> None:
    """Decisions about many pods take seconds, in which the node would be closed."""
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    async with cluster.driver.state.turn, cluster.running():
        await asyncio.sleep(0.1)
        cluster.come("n1")
        await cluster.until_nothing_is_asked()


async def test_request_that_could_not_be_deleted_is_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing else happens."""
    monkeypatch.setattr(placeholders, "_RETRY_SECONDS", 0.01)
    cluster = Cluster()
    cluster.driver.add(whole("p"))
    assert len(await cluster.until_asked()) == 1
    cluster.api.on_write = refusing("/pods/")
    async with cluster.running():
        cluster.come("n1")
        await asyncio.sleep(0.1)
        assert len(cluster.api.all("pods")) == 1
        cluster.api.on_write = lambda _method, _path: None
        await cluster.until_nothing_is_asked()


async def test_request_ends_whose_node_came_before_a_new_leader_saw_it() -> None:
    """The nodes of a new leader may be complete before its pods are."""
    cluster = Cluster()
    cluster.come("n1")
    cluster.place("tranche-node-6-1", "gpus")
    assert (await cluster.look(), cluster.ended("answered")) == (set(), 1)
