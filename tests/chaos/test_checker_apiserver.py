"""The checker on a real API server: each test breaks one promise, and the checker reports it."""

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
from chaos.leases import LABEL
from chaos.proxy import Proxy, context
from chaos.violation import Kind
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import GPU_CLAIMS, GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS
from lab import kubectl, manifests, pki
from lab.client import client
from lab.files import write_private
from lab.processes import Daemon
from tests.chaos.support.objects import MIB, card_lease, claim, lease, limits, share, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
PATIENCE_S = 30.0
PROXY_PORT = 50
DEFINITIONS = manifests.ROOT / "base" / "crds"


class Cluster:
    """A cluster without this project's policies, so that everything is allowed, and the checker that watches it."""

    def __init__(self, api: Api, checker: Checker, proxy: Proxy) -> None:
        self.api = api
        self.checker = checker
        self.proxy = proxy

    async def bind(
        self,
        name: str,
        *shares: dict[str, Any],
        asks: dict[str, str] | None = None,
        claimed: tuple[str, str] | None = None,
    ) -> None:
        """Create a pod and bind it to the node, with an allocation if `shares` are given.

        `claimed` are the name and the exclusivity of its GpuClaim.
        """
        await self.create(name, asks=asks, claim=claimed[0] if claimed is not None else "")
        mark = {"claim": {"name": claimed[0], "exclusivity": claimed[1]}} if claimed is not None else {}
        allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": shares}, **mark})
        metadata = {"name": name, "annotations": {"gpu.scheduling/allocation": allocation} if shares else {}}
        body = {"metadata": metadata, "target": {"kind": "Node", "name": "n1"}}
        await self.api.request("POST", PODS.path(namespace="default", name=name, subresource="binding"), body=body)

    async def create(self, name: str, *, asks: dict[str, str] | None = None, claim: str = "") -> None:
        """Create a pod, which names a GpuClaim if one is given."""
        container = {"name": "main", "image": "none", "resources": {"limits": limits() if asks is None else asks}}
        metadata = {"name": name, "annotations": {"gpu.scheduling/claim": claim} if claim else {}}
        pod = {"metadata": metadata, "spec": {"schedulerName": "tranche", "containers": [container]}}
        await self.api.create(PODS, pod, namespace="default")

    async def delete(self, name: str) -> None:
        """Delete a pod at once."""
        await self.api.request("DELETE", PODS.path(namespace="default", name=name), body={"gracePeriodSeconds": 0})

    async def seen(self, condition: Callable[[], object]) -> None:
        """Wait until a condition on the checker holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 -- the checker signals violations only
                await asyncio.sleep(0.05)

    async def reported(self, kind: Kind, subject: str) -> None:
        """Wait until the checker reports this violation and no other one."""
        await self.seen(lambda: self.checker.books.violations)
        assert [(each.kind, each.subject) for each in self.checker.books.violations] == [(kind, subject)]


@pytest.fixture(scope="module")
def bare(empty_cluster: Layout) -> Layout:
    """A cluster with this project's CRDs and none of its policies, whose controllers do not miss the node's kubelet."""
    Daemon(empty_cluster, "kube-controller-manager").stop()
    for file in DEFINITIONS.glob("*.yaml"):
        client(empty_cluster).apply(yaml.safe_load(file.read_text()))
    kubectl.run(empty_cluster, "wait", "--for=condition=Established", "crd", "--all")
    asyncio.run(prepare(empty_cluster))
    return empty_cluster


@pytest.fixture
async def cluster(bare: Layout) -> AsyncIterator[Cluster]:
    """A cluster with a node of two idle cards; the checker reads through a proxy that can cut it off."""
    trusted = ssl.create_default_context(cafile=str(pki.certificate(bare, pki.CLUSTER_CA)))
    shown = context(certificate=str(pki.certificate(bare, "kube-apiserver")), key=str(pki.key(bare, "kube-apiserver")))
    proxy = Proxy(server=bare.server, interference=Interference(Random(1)))  # noqa: S311 -- not a secret
    port = bare.base_port + PROXY_PORT
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(proxy.listening(port, shown=shown, trusted=trusted))
        api = Api(await stack.enter_async_context(connect(program="tranche-test", kubeconfig=str(bare.kubeconfig))))
        identity = await asyncio.to_thread(watcher, bare, port)
        watched = await stack.enter_async_context(connect(program="tranche-test", kubeconfig=identity))
        checker = Checker(Api(watched), patience_seconds=5.0, lease_seconds=70.0)
        await stack.enter_async_context(checker.watching())
        yield Cluster(api, checker, proxy)
        await api.request("DELETE", PODS.path(namespace="default"), body={"gracePeriodSeconds": 0})
        of_cards = {"labelSelector": f"{LABEL}=true"}
        await api.request("DELETE", LEASES.path(namespace="tranche-system"), params=of_cards)


async def prepare(layout: Layout) -> None:
    """Make the node, its cards and its agent's heartbeat."""
    async with connect(program="tranche-test", kubeconfig=str(layout.kubeconfig)) as connection:
        api = Api(connection)
        await api.create(NODES, {"metadata": {"name": "n1"}})
        await api.merge(NODES, {"spec": {"taints": None}}, name="n1")
        said = {"apiVersion": GPU_NODE_STATUSES.api_version, "kind": GPU_NODE_STATUSES.kind, **status()}
        await api.create(GPU_NODE_STATUSES, {**said, "spec": {"nodeName": "n1"}})
        await api.merge(GPU_NODE_STATUSES, {"status": said["status"]}, name="n1", subresource="status")
        await api.create(NAMESPACES, {"metadata": {"name": "tranche-system"}})
        beat = lease(renewed="2026-01-01T00:00:00.000000Z", seconds=600)
        await api.create(LEASES, beat, namespace="tranche-system")


def watcher(layout: Layout, port: int) -> str:
    """Write the kubeconfig of an account that may do everything, through the proxy, with a token."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "watcher", "namespace": "default"}}
    client(layout).apply(account)
    subject = {"kind": "ServiceAccount", "name": "watcher", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    may = {"kind": "ClusterRoleBinding", "metadata": {"name": "watcher"}, "roleRef": role, "subjects": [subject]}
    client(layout).apply({"apiVersion": "rbac.authorization.k8s.io/v1", **may})
    token = kubectl.run(layout, "create", "token", "watcher")
    content = yaml.safe_load(layout.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    content["users"][0]["user"] = {"token": token.strip()}
    return str(write_private(layout.root / "watcher", yaml.safe_dump(content)))


async def test_card_allocated_twice_is_reported(cluster: Cluster) -> None:
    """The report names the card."""
    await cluster.bind("a", share(memory=6000), asks=limits(memory=6000))
    await cluster.bind("b", share(memory=6000), asks=limits(memory=6000))
    await cluster.reported(Kind.OVER_CAPACITY, "n1-0")


async def test_moment_without_a_connection_is_checked(cluster: Cluster) -> None:
    """While the checker is cut off, two pods share a card that fits only one of them, and both are deleted."""
    cluster.proxy.interference.cut = True
    cluster.proxy.cut_connections()
    for name in ("a", "b"):
        await cluster.bind(name, share(memory=6000), asks=limits(memory=6000))
    for name in ("a", "b"):
        await cluster.delete(name)
    assert cluster.checker.books.violations == []
    cluster.proxy.interference.heal()
    await cluster.reported(Kind.OVER_CAPACITY, "n1-0")
    assert cluster.checker.gaps == 0
    await cluster.seen(lambda: not cluster.checker.books.bound())


async def test_node_without_an_allocation_is_reported(cluster: Cluster) -> None:
    """A scheduler that binds first and annotates later leaves this state."""
    await cluster.bind("a")
    await cluster.reported(Kind.NO_ALLOCATION, "default/a")


async def test_allocation_without_a_node_is_reported(cluster: Cluster) -> None:
    """A scheduler that annotates first and binds later leaves this state."""
    await cluster.create("a")
    allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share()]}})
    body = {"metadata": {"annotations": {"gpu.scheduling/allocation": allocation}}}
    await cluster.api.merge(PODS, body, name="a", namespace="default")
    await cluster.reported(Kind.NO_NODE, "default/a")


async def test_changed_allocation_is_reported(cluster: Cluster) -> None:
    """The container has already started with the first allocation."""
    await cluster.bind("a", share("n1-0"))
    await cluster.seen(lambda: cluster.checker.books.placed == 1)
    allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share("n1-1")]}})
    body = {"metadata": {"annotations": {"gpu.scheduling/allocation": allocation}}}
    await cluster.api.merge(PODS, body, name="a", namespace="default")
    await cluster.reported(Kind.BOUND_TWICE, "default/a")


async def test_pod_that_is_never_placed_is_reported(cluster: Cluster) -> None:
    """A card is free, but no scheduler runs."""
    await cluster.create("a")
    await cluster.reported(Kind.WAITS, "default/a")


async def test_exclusive_card_with_a_second_pod_is_reported(cluster: Cluster) -> None:
    """The checker reads the GpuClaims; a Shared one takes nothing, so that the card is not over its capacity."""
    for name, exclusivity in (("alone", "Exclusive"), ("together", "Shared")):
        content = {
            "apiVersion": GPU_CLAIMS.api_version,
            "kind": GPU_CLAIMS.kind,
            **claim(name, exclusivity=exclusivity),
        }
        content["metadata"] = {"name": name}
        await cluster.api.create(GPU_CLAIMS, content, namespace="default")
    await cluster.seen(lambda: len(cluster.checker.books.claims) == 2)
    asks = {"nvidia.com/gpu": "1"}
    await cluster.bind("a", share(memory=MIB, cores=1000), asks=asks, claimed=("alone", "Exclusive"))
    await cluster.bind("b", share(memory=0, cores=0), asks=asks, claimed=("together", "Shared"))
    await cluster.reported(Kind.SHARED_EXCLUSIVE, "n1-0")


async def test_two_leases_for_one_card_are_reported(cluster: Cluster) -> None:
    """The Leases of cards are in the namespace of the agents' heartbeats, and their label distinguishes them."""
    for name in ("gpu-n1-0", "gpu-n1-1"):
        content = card_lease("p", name=name)
        metadata = {key: content["metadata"][key] for key in ("name", "labels", "annotations")}
        await cluster.api.create(LEASES, {**content, "metadata": metadata}, namespace="tranche-system")
    await cluster.reported(Kind.HELD_TWICE, "n1-0")


async def test_correct_bindings_are_not_violations(cluster: Cluster) -> None:
    """Pods share a card within its capacity, at the same time and one after another."""
    for number in range(3):
        await cluster.bind(f"p{number}", share(memory=3000), asks=limits(memory=3000))
    await cluster.delete("p0")
    await cluster.bind("last", share(memory=3000), asks=limits(memory=3000))
    await cluster.seen(lambda: cluster.checker.books.placed == 4)
    assert cluster.checker.books.violations == []
