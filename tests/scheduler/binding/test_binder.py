"""A Binding has one outcome, whatever errors occur; on a real API server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, HAMI_TIME
from allocation.request import ContainerRequest, Kind, PodRequest
from cluster.api import Api
from cluster.connect import connect
from lab import control_plane as control_plane_module
from lab import kubeconfig, kubectl, manifests
from lab.client import client
from lab.processes import Daemon
from scheduler.binding.binder import Binder, Result
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from tests.scheduler.support.fencing import fenced
from tests.support import namespaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE = "binder"
TOKEN = "1/binder"  # noqa: S105 -- no secret
TOO_EARLY = ("no params found", "failed to find resource referenced by paramKind")
"""What a policy says while its API server has not read the leader's token, or the kind of the token, yet."""
REQUEST = PodRequest((ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", count=1, memory_mib=100, cores=0),))


def chosen(node: str = "n1") -> Scheduled:
    """Return the scheduling result for a pod with one container."""
    return Scheduled(node, REQUEST, Allocation(node, {"main": (CardShare(f"GPU-{node}-0", 0, 100, 0),)}), "")


@pytest.fixture(scope="module")
def server(control_plane: Layout) -> Iterator[Layout]:
    """An API server with the project's policies and the test as the leader, and the test's namespace."""
    manifests.install(control_plane)
    epoch, identity = TOKEN.split("/")
    lead = {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "Leadership",
        "metadata": {"name": "tranche-scheduler", "namespace": "tranche-system"},
        "spec": {"epoch": int(epoch), "identity": identity},
    }
    client(control_plane).apply(lead)
    client(control_plane).apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    namespaces.usable(control_plane, NAMESPACE)
    yield control_plane
    client(control_plane).delete("leadership", "tranche-scheduler", namespace="tranche-system")


@pytest.fixture
async def api(server: Layout) -> AsyncIterator[Api]:
    """The API, as the scheduler."""
    identity = kubeconfig.service_account_kubeconfig(server, namespace="tranche-system", name="tranche-scheduler")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        yield Api(connection, timeout=5)


def create(server: Layout, name: str) -> Pod:
    """Create a pod that no scheduler binds, and return it as the scheduler would see it."""
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }
    kubectl.run(server, "delete", "pod", name, "-n", NAMESPACE, "--ignore-not-found", "--force", "--grace-period=0")
    kubectl.run(server, "create", "-f", "-", stdin=json.dumps(manifest))
    return read(server, name)


def read(server: Layout, name: str) -> Pod:
    """Read a pod."""
    return msgspec.convert(client(server).get("pod", name, namespace=NAMESPACE), Pod)


async def bind(api: Api, pod: Pod, decision: Scheduled | None = None, *, timeout_s: float = 2) -> Result:
    """Bind as the leader; wait until the API server has read the policies and the leader's token."""
    binder = Binder(fenced(api, token=TOKEN, timeout_seconds=timeout_s))
    async with asyncio.timeout(60):
        while True:
            result = await binder.bind(pod, decision or chosen())
            if not any(early in result.note for early in TOO_EARLY):
                return result
            await asyncio.sleep(0.05)


async def test_node_and_allocation_are_written_together(server: Layout, api: Api) -> None:
    """One write sets both."""
    result = await bind(api, create(server, "bound"))
    assert result.outcome is Outcome.BOUND
    pod = client(server).get("pod", "bound", namespace=NAMESPACE)
    assert pod["spec"]["nodeName"] == "n1"
    assert "GPU-n1-0" in pod["metadata"]["annotations"][ALLOCATION]
    assert pod["metadata"]["annotations"]["cuda-visible-devices.gpu.scheduling/main"] == "GPU-n1-0"
    assert pod["metadata"]["annotations"]["gpu.scheduling/leader"] == TOKEN
    assert abs(int(pod["metadata"]["annotations"][HAMI_TIME]) - time.time()) < 60


async def test_a_repeated_binding_is_idempotent(server: Layout, api: Api) -> None:
    """After a lost response the same Binding is sent again: the conflict with its own success counts as success."""
    pod = create(server, "repeated")
    assert (await bind(api, pod)).outcome is Outcome.BOUND
    assert (await bind(api, pod)).outcome is Outcome.BOUND


async def test_a_deleted_pod_is_gone(server: Layout, api: Api) -> None:
    """The pod is deleted between scheduling and Binding."""
    pod = create(server, "deleted")
    kubectl.run(server, "delete", "pod", "deleted", "-n", NAMESPACE, "--force", "--grace-period=0")
    assert (await bind(api, pod)).outcome is Outcome.GONE


async def test_a_recreated_pod_is_gone(server: Layout, api: Api) -> None:
    """It has the same name and another UID: the Binding does not affect it."""
    old = create(server, "again")
    new = create(server, "again")
    assert old.uid != new.uid
    assert (await bind(api, old)).outcome is Outcome.GONE
    assert read(server, "again").spec.node_name == ""


async def test_a_pod_that_another_scheduler_bound_is_taken(server: Layout, api: Api) -> None:
    """It is on another node, or has another allocation."""
    pod = create(server, "taken")
    assert (await bind(api, pod, chosen("n2"))).outcome is Outcome.BOUND
    assert (await bind(api, pod)).outcome is Outcome.TAKEN
    other = chosen("n2")
    other = Scheduled("n2", REQUEST, Allocation("n2", {"main": (CardShare("GPU-n2-5", 5, 100, 0),)}), "")
    assert (await bind(api, pod, other)).outcome is Outcome.TAKEN


async def test_a_gated_pod_is_refused(server: Layout, api: Api) -> None:
    """A gate was added after scheduling: the API server's conflict is final, and the Binding is not sent again."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gated", "namespace": NAMESPACE},
        "spec": {
            "schedulingGates": [{"name": "test.example/hold"}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    kubectl.run(server, "create", "-f", "-", stdin=json.dumps(manifest))
    result = await bind(api, read(server, "gated"))
    assert result.outcome is Outcome.REFUSED
    assert result.note


async def test_a_binding_is_repeated_until_its_outcome_is_known(server: Layout, api: Api) -> None:
    """The API server is unreachable when the Binding is sent: it is sent again until it is accepted, once."""
    pod = create(server, "patient")
    Daemon(server, "kube-apiserver").stop()
    try:
        # The API server may refuse until it has read its roles: the first attempt stays in doubt for longer than that.
        binding = asyncio.create_task(bind(api, pod, timeout_s=30))
        # Nothing listens now, so the first attempt fails before the server is back.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(binding)
    finally:
        await asyncio.to_thread(control_plane_module.start_apiserver, server)
    assert (await binding).outcome is Outcome.BOUND
    assert read(server, "patient").spec.node_name == "n1"


async def test_a_refusal_has_the_message_of_the_api_server(server: Layout) -> None:
    """The identity may not bind: the Binding is not repeated, and the message is kept for the event."""
    pod = create(server, "refused")
    identity = kubeconfig.service_account_kubeconfig(server, namespace=NAMESPACE, name="default")
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        result = await bind(Api(connection), pod)
    assert result.outcome is Outcome.REFUSED
    assert 'cannot create resource "pods/binding"' in result.note
    assert read(server, "refused").spec.node_name == ""
