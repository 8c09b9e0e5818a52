"""What the API server tells reaches the scheduler's state whole: the caches and the state together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec

from cluster.api import Api
from cluster.reflector import Reflector
from cluster.resource import LEASES, PODS
from cluster.traffic import Traffic
from scheduler.heartbeats import Lease
from scheduler.objects import Pod
from scheduler.state import State
from tests.scheduler.builders import allocated, lease, state


class Server:
    """An API server with one list, which a test changes, and one watch, into which it writes."""

    status = 200
    traffic = Traffic()

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.paths: list[str] = []
        self.is_watched = asyncio.Event()
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def request(self, _method: str, path: str, **_: Any) -> bytes:
        """Answer the list."""
        self.paths.append(path)
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": self.items})

    @asynccontextmanager
    async def open(self, _method: str, path: str, **_: Any) -> AsyncIterator[Any]:
        """Answer the watch."""
        self.paths.append(path)
        self.is_watched.set()
        yield self

    @property
    def content(self) -> "Server":
        """The body of the watch."""
        return self

    async def readany(self) -> bytes:
        """Answer what comes next on the watch; nothing ends it."""
        return await self.lines.get()

    def tell(self, kind: str, item: Any) -> None:
        """Write an event."""
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": item}) + b"\n")


def seen(item: Pod, *, version: str, uid: str = "") -> Pod:
    """Answer an object as it is at some version."""
    item.metadata.resource_version = version
    item.metadata.uid = uid or item.metadata.uid
    return item


def used_mib(made: State) -> int:
    """Answer the memory in use everywhere."""
    return int(made.ledger.used[0].sum())


@asynccontextmanager
async def following(made: State, server: Server) -> AsyncIterator[asyncio.Queue[Pod]]:
    """Keep a state up to date with the server's pods; the queue has each pod that the state was told of."""
    told: asyncio.Queue[Pod] = asyncio.Queue()

    def take(pod: Pod, old: Pod | None) -> None:
        made.set_pod(pod, old)
        told.put_nowait(pod)

    pods = Reflector(cast("Api", server), PODS, Pod, on_set=take, on_delete=made.drop_pod)
    task = asyncio.create_task(pods.run())
    try:
        yield told
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def next_uid(told: asyncio.Queue[Pod]) -> str:
    """Wait for the next pod."""
    async with asyncio.timeout(5):
        return (await told.get()).uid


async def test_a_pod_that_is_replaced_under_its_name_gives_its_share_back() -> None:
    """A watch that lost the deletion shows another UID under the same name: the first is gone, the second counts."""
    made = state("n1")
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    async with following(made, server) as told:
        assert await next_uid(told) == "uid-a"
        assert used_mib(made) == 600
        server.tell("MODIFIED", seen(allocated("a", node="n1", memory=300, card=1), version="2", uid="uid-second"))
        assert await next_uid(told) == "uid-second"
        assert used_mib(made) == 300
        assert {each.uid for each in made.ledger.holdings()} == {"uid-second"}
        assert made.fleet.pods_on("n1") == 1


async def test_a_list_that_shows_a_replaced_pod_does_the_same() -> None:
    """The watch broke and the deletion was never told."""
    made = state("n1")
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    async with following(made, server) as told:
        assert await next_uid(told) == "uid-a"
        server.items = (seen(allocated("a", node="n1", memory=300), version="3", uid="uid-second"),)
        server.tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        assert await next_uid(told) == "uid-second"
        assert used_mib(made) == 300
        assert {each.uid for each in made.ledger.holdings()} == {"uid-second"}


async def test_heartbeats_are_read_in_their_namespace_only() -> None:
    """The scheduler may not list the Leases of others."""
    server = Server(lease("n1"))
    made = state("n1")
    leases = Reflector(cast("Api", server), LEASES, Lease, on_set=made.set_lease, namespace="tranche-system")
    task = asyncio.create_task(leases.run())
    async with asyncio.timeout(5):
        await server.is_watched.wait()
    task.cancel()
    assert server.paths == ["/apis/coordination.k8s.io/v1/namespaces/tranche-system/leases"] * 2


async def test_a_list_that_shows_nothing_new_keeps_what_is_known() -> None:
    """Tens of thousands of pods are not held a second time, nor told again, because they are listed again."""
    told: list[Pod] = []
    server = Server(seen(allocated("a", node="n1", memory=600), version="1"))
    pods = Reflector(cast("Api", server), PODS, Pod, on_set=lambda pod, _: told.append(pod))
    for _ in range(2):
        await pods._list()
    assert [each is told[0] for each in pods] == [True]
    assert len(told) == 1
