"""The checker on a real API server, on which somebody does what nobody may."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from chaos.checker import Checker
from chaos.interference import Interference
from chaos.proxy import Proxy, context
from chaos.violation import Kind
from cluster.api import Api
from cluster.connection import connect
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS
from lab import cluster as lab
from lab import control_plane, kubectl, manifests, pki
from lab.files import write_private
from lab.layout import PORT_BLOCK, Layout
from tests.chaos.things import lease, limits, share, status
from tests.conftest import BASE_PORT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]
PATIENCE_S = 30.0
PROXY_PORT = 50
DEFINITION = manifests.ROOT / "base" / "crds" / "gpunodestatuses.yaml"


class Cluster:
    """A cluster without a line of our policies, so that anybody may do anything, and the checker that watches it."""

    def __init__(self, api: Api, checker: Checker, proxy: Proxy) -> None:
        self.api = api
        self.checker = checker
        self.proxy = proxy

    async def bind(self, name: str, *shares: dict[str, Any], asks: dict[str, str] | None = None) -> None:
        """Create a pod and bind it to the node, with an allocation where there are shares."""
        await self.create(name, asks=asks)
        allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": shares}})
        metadata = {"name": name, "annotations": {"gpu.scheduling/allocation": allocation} if shares else {}}
        body = {"metadata": metadata, "target": {"kind": "Node", "name": "n1"}}
        await self.api.request("POST", PODS.path(namespace="default", name=name, subresource="binding"), body=body)

    async def create(self, name: str, *, asks: dict[str, str] | None = None) -> None:
        """Create a pod."""
        container = {"name": "main", "image": "none", "resources": {"limits": limits() if asks is None else asks}}
        pod = {"metadata": {"name": name}, "spec": {"schedulerName": "tranche", "containers": [container]}}
        await self.api.create(PODS, pod, namespace="default")

    async def delete(self, name: str) -> None:
        """Delete a pod at once."""
        await self.api.request("DELETE", PODS.path(namespace="default", name=name), body={"gracePeriodSeconds": 0})

    async def seen(self, condition: Callable[[], object]) -> None:
        """Wait until the checker has seen something."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 -- the checker tells nobody when it has nothing to report
                await asyncio.sleep(0.05)

    async def broken(self, kind: Kind, subject: str) -> None:
        """Wait until the checker says that this was broken, and nothing else was."""
        await self.seen(lambda: self.checker.books.violations)
        assert [(each.kind, each.subject) for each in self.checker.books.violations] == [(kind, subject)]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A control plane that knows what a GpuNodeStatus is, and has no line of our policies."""
    layout = Layout(root=tmp_path_factory.mktemp("bare"), base_port=BASE_PORT + PORT_BLOCK)
    try:
        control_plane.up(layout, controller_manager=False, kube_scheduler=False)
        kubectl.apply(layout, yaml.safe_load(DEFINITION.read_text()))
        kubectl.run(layout, "wait", "--for=condition=Established", "crd", "--all")
        asyncio.run(prepare(layout))
        yield layout
    finally:
        lab.down(layout)


@pytest.fixture
async def cluster(bare: Layout) -> AsyncIterator[Cluster]:
    """A node of two idle cards; the checker reads through a proxy that can cut it off."""
    trusted = ssl.create_default_context(cafile=str(pki.certificate(bare, pki.CLUSTER_CA)))
    shown = context(certificate=str(pki.certificate(bare, "kube-apiserver")), key=str(pki.key(bare, "kube-apiserver")))
    proxy = Proxy(server=bare.server, interference=Interference(Random(1)))  # noqa: S311 -- no secret
    port = bare.base_port + PROXY_PORT
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(proxy.listening(port, shown=shown, trusted=trusted))
        api = Api(await stack.enter_async_context(connect(kubeconfig=str(bare.kubeconfig))))
        identity = await asyncio.to_thread(watcher, bare, port)
        watched = await stack.enter_async_context(connect(kubeconfig=identity))
        checker = Checker(Api(watched), patience_seconds=5.0)
        await stack.enter_async_context(checker.watching())
        yield Cluster(api, checker, proxy)
        await api.request("DELETE", PODS.path(namespace="default"), body={"gracePeriodSeconds": 0})


async def prepare(layout: Layout) -> None:
    """Make the node, its cards and its agent's heartbeat."""
    async with connect(kubeconfig=str(layout.kubeconfig)) as connection:
        api = Api(connection)
        await api.create(NODES, {"metadata": {"name": "n1"}})
        await api.merge(NODES, {"spec": {"taints": None}}, name="n1")
        said = {"apiVersion": GPU_NODE_STATUSES.api_version, "kind": GPU_NODE_STATUSES.kind, **status()}
        await api.create(GPU_NODE_STATUSES, {**said, "spec": {"nodeName": "n1"}})
        await api.merge(GPU_NODE_STATUSES, {"status": said["status"]}, name="n1", subresource="status")
        await api.create(NAMESPACES, {"metadata": {"name": "tranche-system"}})
        beat = lease(renewed="2026-01-01T00:00:00.000000Z", seconds=600)
        await api.create(LEASES, {**beat, "metadata": {"name": "gpu-n1"}}, namespace="tranche-system")


def watcher(layout: Layout, port: int) -> str:
    """Write a kubeconfig of somebody who may read everything, by way of the proxy: a token passes through it."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "watcher", "namespace": "default"}}
    kubectl.apply(layout, account)
    subject = {"kind": "ServiceAccount", "name": "watcher", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    may = {"kind": "ClusterRoleBinding", "metadata": {"name": "watcher"}, "roleRef": role, "subjects": [subject]}
    kubectl.apply(layout, {"apiVersion": "rbac.authorization.k8s.io/v1", **may})
    token = kubectl.run(layout, "create", "token", "watcher")
    content = yaml.safe_load(layout.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    content["users"][0]["user"] = {"token": token.strip()}
    return str(write_private(layout.root / "watcher", yaml.safe_dump(content)))


async def test_a_card_that_is_given_out_twice(cluster: Cluster) -> None:
    """Reported with the card's name."""
    await cluster.bind("a", share(memory=6000), asks=limits(memory=6000))
    await cluster.bind("b", share(memory=6000), asks=limits(memory=6000))
    await cluster.broken(Kind.OVER_CAPACITY, "n1-0")


async def test_a_moment_that_nobody_was_connected_for(cluster: Cluster) -> None:
    """Two pods share a card that has room for one, and are gone, all while the checker is cut off."""
    cluster.proxy.interference.cut = True
    cluster.proxy.cut_connections()
    for name in ("a", "b"):
        await cluster.bind(name, share(memory=6000), asks=limits(memory=6000))
    for name in ("a", "b"):
        await cluster.delete(name)
    assert cluster.checker.books.violations == []
    cluster.proxy.interference.heal()
    await cluster.broken(Kind.OVER_CAPACITY, "n1-0")
    assert cluster.checker.gaps == 0
    await cluster.seen(lambda: not cluster.checker.books.bound())


async def test_a_node_without_an_allocation(cluster: Cluster) -> None:
    """As a scheduler leaves it that binds first and annotates later."""
    await cluster.bind("a")
    await cluster.broken(Kind.NO_ALLOCATION, "default/a")


async def test_an_allocation_without_a_node(cluster: Cluster) -> None:
    """As a scheduler leaves it that annotates first and binds later."""
    await cluster.create("a")
    allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share()]}})
    body = {"metadata": {"annotations": {"gpu.scheduling/allocation": allocation}}}
    await cluster.api.merge(PODS, body, name="a", namespace="default")
    await cluster.broken(Kind.NO_NODE, "default/a")


async def test_an_allocation_that_is_written_a_second_time(cluster: Cluster) -> None:
    """The container has started with the first one."""
    await cluster.bind("a", share("n1-0"))
    await cluster.seen(lambda: cluster.checker.books.placed == 1)
    allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share("n1-1")]}})
    body = {"metadata": {"annotations": {"gpu.scheduling/allocation": allocation}}}
    await cluster.api.merge(PODS, body, name="a", namespace="default")
    await cluster.broken(Kind.BOUND_TWICE, "default/a")


async def test_a_pod_that_nobody_places(cluster: Cluster) -> None:
    """There is room, and no scheduler."""
    await cluster.create("a")
    await cluster.broken(Kind.WAITS, "default/a")


async def test_all_is_well(cluster: Cluster) -> None:
    """Pods that share a card within its means, one after the other and at once."""
    for number in range(3):
        await cluster.bind(f"p{number}", share(memory=3000), asks=limits(memory=3000))
    await cluster.delete("p0")
    await cluster.bind("last", share(memory=3000), asks=limits(memory=3000))
    await cluster.seen(lambda: cluster.checker.books.placed == 4)
    assert cluster.checker.books.violations == []
