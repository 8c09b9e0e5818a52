"""A watch on a GpuClaim sees what becomes of its pod; a term of the scheduler on a real API server."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import CLAIM
from allocation.settings import AllocationSettings
from allocation.wire import environment
from cluster.api import Api
from cluster.connect import connect
from cluster.events import Recorder
from cluster.gpu_claim import GpuClaim, GpuClaimStatus
from cluster.gpu_node_status import status_of
from cluster.informer import Informer
from cluster.resource import GPU_CLAIMS
from lab import kubeconfig, manifests, wait
from lab.client import client
from scheduler.metrics.instruments import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.term_builder import build_term
from tests.scheduler.support import claims
from tests.support import identities, namespaces
from tests.support.foreign_policies import MESSAGE, refusing
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE, NODE = "claims", "claims-node"
TOKEN = "1/claims"  # noqa: S105 -- no secret


@pytest.fixture(scope="module")
def server(control_plane: Layout) -> Iterator[Layout]:
    """An API server with the project's manifests, the test as the leader, and a node with four cards."""
    manifests.install(control_plane)
    epoch, identity = TOKEN.split("/")
    lead = {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "Leadership",
        "metadata": {"name": "tranche-scheduler", "namespace": "tranche-system"},
        "spec": {"epoch": int(epoch), "identity": identity},
    }
    inventory = NodeInventory(NODE, tuple(Card(f"GPU-{NODE}-{index}", index, 1000) for index in range(4)))
    status = {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuNodeStatus",
        "metadata": {"name": NODE},
        "spec": {"nodeName": NODE},
    }
    capacity = {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    client(control_plane).apply(
        lead,
        status,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
    )
    _patch_status(control_plane, "node", NODE, capacity)
    _patch_status(control_plane, "gpunodestatus", NODE, msgspec.to_builtins(status_of(inventory)))
    namespaces.usable(control_plane, NAMESPACE, timeout_s=PATIENCE_S)
    yield control_plane
    for kind in ("gpunodestatus", "node"):
        client(control_plane).delete(kind, NODE)
    client(control_plane).delete("leadership", "tranche-scheduler", namespace="tranche-system")


@pytest.fixture(autouse=True)
def pods_of_one_test(server: Layout) -> Iterator[None]:
    """The cards are free when the next test begins: its pods with a node go as if their containers had ended."""
    yield
    for pod in client(server).list("pods", namespace=NAMESPACE):
        api = identities.kubelet(server, NODE) if pod["spec"].get("nodeName") else client(server)
        api.delete("pods", pod["metadata"]["name"], namespace=NAMESPACE, grace_s=0, wait=False)


def _patch_status(layout: Layout, kind: str, name: str, status: Any) -> None:
    client(layout).patch(kind, name, {"status": status}, namespace=NAMESPACE, subresource="status")


@asynccontextmanager
async def scheduling(layout: Layout) -> AsyncIterator[Callable[[str], list[GpuClaimStatus]]]:
    """Run a term; yield a function that returns the statuses of a claim that a watch has seen."""
    seen: list[GpuClaim] = []
    identity = kubeconfig.service_account_kubeconfig(layout, namespace="tranche-system", name="tranche-scheduler")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        api = Api(connection)
        term = build_term(
            api=api,
            token=TOKEN,
            settings=SchedulerSettings(),
            allocation=AllocationSettings(),
            recorder=Recorder(api, component="test", instance="test"),
            metrics=Metrics(),
            is_trusted=lambda: True,
        )
        watch = Informer(api, GPU_CLAIMS, GpuClaim, on_upsert=lambda claim, _: seen.append(claim))
        tasks = [asyncio.create_task(watch.run()), asyncio.create_task(term.run(wait_seconds=0.0))]
        try:
            yield lambda name: [each.status for each in seen if each.metadata.name == name]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await term.drain(PATIENCE_S)


def create_claim(layout: Layout, name: str, **devices: Any) -> GpuClaim:
    """Create a GpuClaim of one device, and return it as the scheduler reads it."""
    made = claims.claim(name, namespace=NAMESPACE, **devices)
    manifest = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": name}}
    spec = {"devices": {"count": 1, **devices}}
    client(layout).create({**manifest, "spec": spec}, namespace=NAMESPACE)
    return made


def create_pod(layout: Layout, name: str, claim: GpuClaim) -> None:
    """Create a pod for a claim, as admission would prepare it."""
    references = environment.references("main", claim.spec.devices.count)
    env = [
        {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
        for variable, key in references.items()
    ]
    container = {**claims.container(claim), "image": "none", "env": env}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {CLAIM: claim.metadata.name}},
        "spec": {"schedulerName": "tranche", "containers": [container]},
    }
    client(layout).create(manifest, namespace=NAMESPACE)


async def until(found: Callable[[], Any], what: str) -> None:
    """Wait for a condition while the term runs."""
    await asyncio.to_thread(wait.until, found, what=what, timeout_s=PATIENCE_S)


def phases(statuses: list[GpuClaimStatus]) -> list[str]:
    """Return the phases that a watch has seen, each once in a row."""
    return [phase for phase, _ in itertools.groupby(status.phase for status in statuses)]


async def test_a_watch_sees_pending_reserved_and_bound(server: Layout) -> None:
    """In this order, with the node, the indexes of the cards and both together."""
    claim = create_claim(server, "two", count=2)
    async with scheduling(server) as watched:
        await until(lambda: watched("two")[-1:] and watched("two")[-1].conditions, "a status")
        assert watched("two")[-1].conditions[0].reason == "NoPod"
        create_pod(server, "runs", claim)
        await until(lambda: watched("two")[-1].phase == "Bound", "phase Bound")
        statuses = watched("two")
    assert phases(statuses) == ["Pending", "Reserved", "Bound"]
    for status in statuses:
        if status.phase != "Pending":
            assert (status.node_name, status.gpu_ids, status.allocated) == (NODE, (0, 1), f"{NODE}:0,1")
    reasons = [(status.conditions[0].status, status.conditions[0].reason) for status in statuses if status.conditions]
    assert [reason for reason, _ in itertools.groupby(reasons)] == [
        ("False", "NoPod"),
        ("False", "Waiting"),
        ("False", "LeasesHeld"),
        ("True", "Bound"),
    ]


async def test_a_claim_says_why_its_pod_waits(server: Layout) -> None:
    """With the reasons of the pod's condition, and no node."""
    claim = create_claim(server, "five", count=5)
    async with scheduling(server) as watched:
        create_pod(server, "waits", claim)
        await until(
            lambda: watched("five")[-1:] and "NodeInsufficientDevice" in watched("five")[-1].message, "the reason"
        )
        assert watched("five")[-1].message.startswith("pod waits: no available node")
        assert (watched("five")[-1].phase, watched("five")[-1].node_name) == ("Pending", "")


@pytest.fixture
def refused(server: Layout) -> Iterator[Callable[[], None]]:
    """A policy that refuses every Binding of the namespace; the function removes it."""
    with ExitStack() as stack:
        stack.enter_context(refusing(server, "binding", namespace=NAMESPACE))
        yield stack.close


async def test_a_refused_binding_is_a_failure_until_the_next_reservation(
    server: Layout, refused: Callable[[], None]
) -> None:
    """The claim shows the message of the policy, and no cards; once it is gone, the pod is bound."""
    claim = create_claim(server, "refused", exclusivity="Shared")
    async with scheduling(server) as watched:
        create_pod(server, "refused", claim)
        await until(lambda: "Failed" in phases(watched("refused")), "phase Failed")
        failed = next(status for status in watched("refused") if status.phase == "Failed")
        assert MESSAGE in failed.message
        assert (failed.node_name, failed.gpu_ids, failed.allocated) == ("", (), "")
        assert failed.conditions[0].reason == "BindingRefused"
        refused()
        await until(lambda: watched("refused")[-1].phase == "Bound", "phase Bound")
    after = phases(watched("refused"))
    assert after[-2:] == ["Reserved", "Bound"]
    assert set(after[:-2]) == {"Pending", "Reserved", "Failed"}


async def test_a_new_term_corrects_what_the_last_one_left(server: Layout) -> None:
    """A status that was written ahead of what happened, or not at all, follows the pods again."""
    ahead, behind = (create_claim(server, name, exclusivity="Shared") for name in ("ahead", "behind"))
    async with scheduling(server) as watched:
        create_pod(server, "behind", behind)
        await until(lambda: watched("behind")[-1:] and watched("behind")[-1].phase == "Bound", "phase Bound")
    _patch_status(server, "gpuclaim", ahead.metadata.name, {"phase": "Reserved", "nodeName": NODE, "gpuIds": [1]})
    _patch_status(server, "gpuclaim", "behind", {"phase": "Pending", "allocated": None})
    async with scheduling(server) as watched:
        await until(lambda: watched("ahead")[-1:] and watched("ahead")[-1].phase == "Pending", "phase Pending")
        await until(lambda: watched("behind")[-1:] and watched("behind")[-1].phase == "Bound", "phase Bound")
        assert (watched("ahead")[-1].node_name, watched("ahead")[-1].gpu_ids) == ("", ())
        assert phases(watched("behind")) == ["Pending", "Bound"]
