"""Informers pass every change in the API server on to the scheduler's state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec

from cluster.api import Api
from cluster.api_observer import ApiObserver
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import LEASES, PODS
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, lease, state


class Server:
    """An API server with one list, which a test changes, and one watch, into which it writes."""

    status = 200
    traffic = ApiObserver()

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.paths: list[str] = []
        self.is_watched = asyncio.Event()
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def request(self, _method: str, path: str, **_: Any) -> bytes:
        """Return the list."""
        self.paths.append(path)
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": self.items})

    @asynccontextmanager
    async def open(self, _method: str, path: str, **_: Any) -> AsyncIterator[Any]:
        """Return the watch."""
        self.paths.append(path)
        self.is_watched.set()
        yield self

    @property
    def content(self) -> "Server":
        """The body of the watch."""
        return self

    async def readany(self) -> bytes:
        """Return the next event of the watch, which has no end."""
        return await self.lines.get()

    def send(self, kind: str, item: Any) -> None:
        """Write an event."""
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": item}) + b"\n")


def seen(item: Pod, *, version: str, uid: str = "") -> Pod:
    """Return a pod at some version."""
    item.metadata.resource_version = version
    item.metadata.uid = uid or item.metadata.uid
    return item


def used_mib(made: ClusterState) -> int:
    """Return the memory in use on all cards."""
    return int(made.ledger.used[0].sum())


@asynccontextmanager
async def following(made: ClusterState, server: Server) -> AsyncIterator[asyncio.Queue[Pod]]:
    """Keep a state up to date with the server's pods; the queue gets each pod that was set in the state."""
    taken: asyncio.Queue[Pod] = asyncio.Queue()

    def take(pod: Pod, old: Pod | None) -> None:
        made.set_pod(pod, old)
        taken.put_nowait(pod)

    pods = Informer(cast("Api", server), PODS, Pod, on_upsert=take, on_delete=made.drop_pod)
    task = asyncio.create_task(pods.run())
    try:
        yield taken
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def next_uid(taken: asyncio.Queue[Pod]) -> str:
    """Wait for the next pod."""
    async with asyncio.timeout(20):
        return (await taken.get()).uid


async def test_a_replaced_pod_releases_its_share() -> None:
    """A watch that lost the deletion shows another UID under the same name: only the second pod counts."""
    made = state("n1")
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    async with following(made, server) as taken:
        assert await next_uid(taken) == "uid-a"
        assert used_mib(made) == 600
        server.send("MODIFIED", seen(allocated("a", node="n1", memory=300, card=1), version="2", uid="uid-second"))
        assert await next_uid(taken) == "uid-second"
        assert used_mib(made) == 300
        assert {each.uid for each in made.ledger.reservations()} == {"uid-second"}
        assert made.node_cache.pods_on("n1") == 1


async def test_a_replaced_pod_in_a_list_releases_its_share() -> None:
    """The watch broke, and the deletion was never sent."""
    made = state("n1")
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    async with following(made, server) as taken:
        assert await next_uid(taken) == "uid-a"
        server.items = (seen(allocated("a", node="n1", memory=300), version="3", uid="uid-second"),)
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        assert await next_uid(taken) == "uid-second"
        assert used_mib(made) == 300
        assert {each.uid for each in made.ledger.reservations()} == {"uid-second"}


async def test_agent_leases_are_read_in_their_namespace_only() -> None:
    """The scheduler may not list Leases in other namespaces."""
    server = Server(lease("n1"))
    made = state("n1")
    leases = Informer(cast("Api", server), LEASES, Lease, on_upsert=made.set_lease, namespace="tranche-system")
    task = asyncio.create_task(leases.run())
    async with asyncio.timeout(20):
        await server.is_watched.wait()
    task.cancel()
    assert server.paths == ["/apis/coordination.k8s.io/v1/namespaces/tranche-system/leases"] * 2


async def test_a_list_without_changes_replaces_no_objects() -> None:
    """A repeated list neither copies tens of thousands of pods nor calls their handlers again."""
    taken: list[Pod] = []
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    pods = Informer(cast("Api", server), PODS, Pod, on_upsert=lambda pod, _: taken.append(pod))
    for _ in range(2):
        await pods._list()
    assert [each is taken[0] for each in pods] == [True]
    assert len(taken) == 1
