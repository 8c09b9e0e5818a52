"""Nodes are locked for one pod after the other, and unneeded locks are freed; on a real API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import HAMI_BIND_PHASE, HAMI_LOCK, SCHEDULER_NAME
from cluster.api import Api
from cluster.connect import connect
from cluster.informer import Informer
from cluster.resource import NODES, PODS
from lab import kubectl, wait
from lab.client import client
from scheduler.binding.node_lock import EXPIRY_SECONDS, PLUGIN_SECONDS
from scheduler.binding.node_locks import NodeLocks
from scheduler.objects import Node, Pod
from tests.scheduler.support import builders
from tests.scheduler.support.builders import Clock
from tests.scheduler.support.fencing import fenced
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE, NODE = "default", "locked-node"


@pytest.fixture
def node(control_plane: Layout) -> Iterator[Layout]:
    """The lab with a node; its pods are gone afterwards."""
    client(control_plane).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    yield control_plane
    kubectl.run(control_plane, "delete", "pods", "-l", "test=locks", "--force", "--grace-period=0")
    client(control_plane).delete("node", NODE)


class Term:
    """The locks with their caches, and what a test may change; `overrides` are pods that replace the API server's."""

    def __init__(self, api: Api) -> None:
        self.clock = Clock()
        self.is_served = True
        self.overrides: dict[str, Pod] = {}
        self.keeper = NodeLocks(
            fenced(api, timeout_seconds=10),
            clock=self.clock,
            is_served=lambda _: self.is_served,
            is_ours=lambda pod: pod.spec.scheduler_name == SCHEDULER_NAME,
            find_pod=lambda namespace, name: self.overrides.get(name) or self.pods.get(name, namespace),
        )
        keeper = self.keeper
        self.nodes = Informer(api, NODES, Node, on_upsert=keeper.set_node, on_delete=keeper.drop_node)
        self.pods = Informer(api, PODS, Pod, on_upsert=keeper.set_pod, on_delete=keeper.set_pod)


@asynccontextmanager
async def term(layout: Layout) -> AsyncIterator[Term]:
    """Run the task of the locks."""
    async with (
        connect(program="tranche-test", kubeconfig=str(layout.kubeconfig)) as connection,
        asyncio.TaskGroup() as group,
    ):
        made = Term(Api(connection))
        tasks = [group.create_task(cache.run()) for cache in (made.nodes, made.pods)]
        await made.nodes.synced.wait()
        await made.pods.synced.wait()
        tasks.append(group.create_task(made.keeper.run()))
        yield made
        for task in tasks:
            task.cancel()


def create(layout: Layout, name: str, *, scheduler: str = SCHEDULER_NAME) -> Pod:
    """Create a pod that is not bound."""
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
    client(layout).delete("pod", name, grace_s=0)


def lock(layout: Layout) -> str:
    """Return the node's lock."""
    found: dict[str, Any] = client(layout).get("node", NODE)["metadata"].get("annotations", {})
    return str(found.get(HAMI_LOCK, ""))


def write(layout: Layout, text: str) -> None:
    """Lock the node as another scheduler does."""
    client(layout).patch("node", NODE, {"metadata": {"annotations": {HAMI_LOCK: str(text)}}})


async def unlocked(layout: Layout) -> None:
    """Wait until the node has no lock."""
    await asyncio.to_thread(wait.until, lambda: lock(layout) == "", what="no lock", timeout_s=PATIENCE_S)


async def test_pods_take_turns(node: Layout) -> None:
    """The second pod gets the lock when the plugin has removed the lock of the first, not before."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("one", "two")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        second = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(second)
        assert lock(node).endswith(f",{NAMESPACE},one")
        client(node).patch("node", NODE, {"metadata": {"annotations": {HAMI_LOCK: None}}})
        assert await second
        assert lock(node).endswith(f",{NAMESPACE},two")


async def test_a_pod_that_was_not_bound_leaves_no_lock(node: Layout) -> None:
    """Its Binding was refused: the next pod gets the lock at once."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("refused", "next")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        made.keeper.release(NODE, pods[0])
        assert await made.keeper.take(NODE, pods[1])
        assert lock(node).endswith(f",{NAMESPACE},next")


async def test_the_lock_of_a_killed_leader_is_freed(node: Layout) -> None:
    """This scheduler binds its pod, which is not bound, and this process did not take the lock."""
    create(node, "orphan")
    write(node, f"2026-01-01T00:00:00Z,{NAMESPACE},orphan")
    async with term(node):
        await unlocked(node)


async def test_the_lock_of_a_deleted_pod_is_freed(node: Layout) -> None:
    """Even if another pod takes its name at once: a lock belongs to a UID."""
    pod = create(node, "again")
    async with term(node) as made:
        assert await made.keeper.take(NODE, pod)
        delete(node, "again")
        new = create(node, "again")
        await unlocked(node)
        assert await made.keeper.take(NODE, new)


async def test_a_foreign_lock_expires_by_the_clock_of_this_process(node: Layout) -> None:
    """HAMi's scheduler has five minutes since the lock was first seen, whatever its time says; so has a bare time."""
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
        client(node).patch("node", NODE, {"metadata": {"annotations": {HAMI_LOCK: None}}})


async def test_a_lock_is_freed_after_the_plugin_failed_to_remove_it(node: Layout) -> None:
    """The plugin has two seconds after it reported the pod as served; it may have been killed in between."""
    pod = create(node, "served")
    async with term(node) as made:
        assert await made.keeper.take(NODE, pod)
        made.overrides["served"] = builders.pod("served", node=NODE, annotations={HAMI_BIND_PHASE: "success"})
        made.overrides["served"].metadata.uid = pod.uid
        made.keeper.set_pod(made.overrides["served"])
        await asyncio.sleep(0)
        assert lock(node)
        made.clock.now += PLUGIN_SECONDS
        made.keeper.set_pod(made.overrides["served"])
        await unlocked(node)


async def test_no_pod_waits_for_a_plugin_that_is_gone(node: Layout) -> None:
    """Queued pods go on, and a lock that this process took is freed."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("holds", "waits")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        waiting = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        made.is_served = False
        client(node).patch("node", NODE, {"metadata": {"annotations": {"test/changed": "yes"}}})
        assert not await waiting
        await unlocked(node)


async def test_a_closed_process_takes_no_more_locks(node: Layout) -> None:
    """No lock is taken after that."""
    pods = [await asyncio.to_thread(create, node, name) for name in ("has", "queues")]
    async with term(node) as made:
        assert await made.keeper.take(NODE, pods[0])
        queued = asyncio.create_task(made.keeper.take(NODE, pods[1]))
        await asyncio.sleep(0)
        made.keeper.close()
        assert not await queued
        assert not await made.keeper.take(NODE, pods[1])
