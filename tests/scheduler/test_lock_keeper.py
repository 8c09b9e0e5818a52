"""Nodes are locked for one pod after the other, and no lock stays for nothing; on a real API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import HAMI_BIND_PHASE, HAMI_LOCK, SCHEDULER_NAME
from cluster.api import Api
from cluster.connection import connect
from cluster.reflector import Reflector
from cluster.resource import NODES, PODS
from lab import kubectl, wait
from scheduler.lock_keeper import LockKeeper
from scheduler.node_lock import EXPIRY_SECONDS, PLUGIN_SECONDS
from scheduler.objects import Node, Pod
from tests.scheduler import builders
from tests.scheduler.builders import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]
NAMESPACE, NODE = "default", "locked-node"


@pytest.fixture
def node(control_plane: Layout) -> Iterator[Layout]:
    """The lab with a node; its pods are gone afterwards."""
    kubectl.apply(control_plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    yield control_plane
    kubectl.run(control_plane, "delete", "pods", "-l", "test=locks", "--force", "--grace-period=0")
    kubectl.run(control_plane, "delete", "node", NODE)


class Term:
    """A keeper with its caches, and what its test may turn; `told` are pods other than the API server shows them."""

    def __init__(self, api: Api) -> None:
        self.clock = Clock()
        self.is_served = True
        self.told: dict[str, Pod] = {}
        self.keeper = LockKeeper(
            api,
            clock=self.clock,
            is_served=lambda _: self.is_served,
            is_ours=lambda pod: pod.spec.scheduler_name == SCHEDULER_NAME,
            find_pod=lambda namespace, name: self.told.get(name) or self.pods.get(name, namespace),
        )
        keeper = self.keeper
        self.nodes = Reflector(api, NODES, Node, on_set=keeper.set_node, on_delete=keeper.drop_node)
        self.pods = Reflector(api, PODS, Pod, on_set=keeper.set_pod, on_delete=keeper.set_pod)


@asynccontextmanager
async def term(layout: Layout) -> AsyncIterator[Term]:
    """Run a keeper."""
    async with connect(kubeconfig=str(layout.kubeconfig)) as connection, asyncio.TaskGroup() as group:
        made = Term(Api(connection))
        tasks = [group.create_task(cache.run()) for cache in (made.nodes, made.pods)]
        await made.nodes.synced.wait()
        await made.pods.synced.wait()
        tasks.append(group.create_task(made.keeper.run()))
        yield made
        for task in tasks:
            task.cancel()


def create(layout: Layout, name: str, *, scheduler: str = SCHEDULER_NAME) -> Pod:
    """Create a pod that nobody binds."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": "locks"}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none"}]},
    }
    return msgspec.convert(
        json.loads(kubectl.run(layout, "create", "-o", "json", "-f", "-", stdin=json.dumps(manifest))), Pod
    )


def delete(layout: Layout, name: str) -> None:
    """Delete a pod at once."""
    kubectl.run(layout, "delete", "pod", name, "--force", "--grace-period=0")


def lock(layout: Layout) -> str:
    """Answer the node's lock."""
    found: dict[str, Any] = kubectl.get(layout, "node", NODE)["metadata"].get("annotations", {})
    return str(found.get(HAMI_LOCK, ""))


def write(layout: Layout, text: str) -> None:
    """Lock the node as somebody else does."""
    kubectl.run(layout, "annotate", "--overwrite", "node", NODE, f"{HAMI_LOCK}={text}")


async def unlocked(layout: Layout) -> None:
    """Wait until the node has no lock."""
    await asyncio.to_thread(wait.until, lambda: lock(layout) == "", what="no lock", timeout_s=30)


async def test_pods_take_turns(node: Layout) -> None:
    """The second gets the lock when the first one's plugin has removed it, not before."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("one", "two")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        second = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(second)
        assert lock(node).endswith(f",{NAMESPACE},one")
        kubectl.run(node, "annotate", "node", NODE, f"{HAMI_LOCK}-")
        assert await second
        assert lock(node).endswith(f",{NAMESPACE},two")


async def test_a_pod_that_was_not_bound_leaves_no_lock(node: Layout) -> None:
    """Its Binding was refused: the next one goes on at once."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("refused", "next")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        made.keeper.let_go(NODE, pods[0])
        assert await made.keeper.take(NODE, pods[1])
        assert lock(node).endswith(f",{NAMESPACE},next")


async def test_a_killed_predecessors_lock_is_freed(node: Layout) -> None:
    """Its pod is ours and was not bound, and this process did not take the lock."""
    create(node, "orphan")
    write(node, f"2026-01-01T00:00:00Z,{NAMESPACE},orphan")
    async with term(node):
        await unlocked(node)


async def test_a_pod_that_is_deleted_frees_its_lock(node: Layout) -> None:
    """Also where another one takes its name at once: a lock belongs to a UID."""
    pod = create(node, "again")
    async with term(node) as made:
        assert await made.keeper.take(NODE, pod)
        delete(node, "again")
        new = create(node, "again")
        await unlocked(node)
        assert await made.keeper.take(NODE, new)


async def test_a_foreign_lock_expires_by_our_clock(node: Layout) -> None:
    """HAMi's scheduler has five minutes from when we saw it, whatever time the lock says; so has an old bare time."""
    pod = create(node, "ours")
    create(node, "theirs", scheduler="hami-scheduler")
    for text in (f"2020-01-01T00:00:00Z,{NAMESPACE},theirs", "2020-01-01T00:00:00Z"):
        write(node, text)
        async with term(node) as made:
            taking = asyncio.create_task(made.keeper.take(NODE, pod))
            made.clock.now += EXPIRY_SECONDS - 1
            made.keeper.set_node(Node(msgspec.convert({"name": "other"}, type(pod.metadata))))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asyncio.shield(taking)
            assert lock(node) == text
            made.clock.now += 1
            made.keeper.set_node(Node(msgspec.convert({"name": "other"}, type(pod.metadata))))
            async with asyncio.timeout(30):
                assert await taking
        kubectl.run(node, "annotate", "node", NODE, f"{HAMI_LOCK}-")


async def test_a_plugin_removes_its_lock_itself_or_is_helped(node: Layout) -> None:
    """Two seconds are its own after it has said that it served the pod; then it was killed in between."""
    pod = create(node, "served")
    async with term(node) as made:
        assert await made.keeper.take(NODE, pod)
        made.told["served"] = builders.pod("served", node=NODE, annotations={HAMI_BIND_PHASE: "success"})
        made.told["served"].metadata.uid = pod.uid
        made.keeper.set_pod(made.told["served"])
        await asyncio.sleep(0)
        assert lock(node)
        made.clock.now += PLUGIN_SECONDS
        made.keeper.set_pod(made.told["served"])
        await unlocked(node)


async def test_a_plugin_that_goes_lets_nobody_wait(node: Layout) -> None:
    """Who queues is answered, and a lock of ours does not wait for a plugin that is not there."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("holds", "waits")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        waiting = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        made.is_served = False
        kubectl.run(node, "annotate", "node", NODE, "test/changed=yes")
        assert not await waiting
        await unlocked(node)


async def test_an_ending_process_queues_no_longer(node: Layout) -> None:
    """Nothing of it is under way then."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("has", "queues")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        queued = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        await asyncio.sleep(0)
        made.keeper.close()
        assert not await queued
        assert not await made.keeper.take(NODE, pods[1])
