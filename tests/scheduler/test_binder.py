"""A Binding has one outcome, whatever happens on the way; on a real API server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.request import ContainerRequest, Kind, PodRequest
from cluster.api import Api
from cluster.connection import connect
from lab import control_plane as control_plane_module
from lab import kubeconfig, kubectl, manifests, wait
from lab.processes import Daemon
from scheduler.binder import Binder, Outcome, Result
from scheduler.cycle import Chosen
from scheduler.objects import Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]
NAMESPACE = "binder"
TOKEN = "1/binder"  # noqa: S105 -- no secret
REQUEST = PodRequest((ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", count=1, memory_mib=100, cores=0),))


def chosen(node: str = "n1") -> Chosen:
    """Answer a decision for a pod with one container."""
    return Chosen(node, REQUEST, Allocation(node, {"main": (CardShare(f"GPU-{node}-0", 0, 100, 0),)}), "")


@pytest.fixture(scope="module")
def server(control_plane: Layout) -> Iterator[Layout]:
    """An API server with our policies, which says that the test leads, and the test's namespace."""
    manifests.install(control_plane)
    epoch, identity = TOKEN.split("/")
    lead = {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "Leadership",
        "metadata": {"name": "tranche-scheduler", "namespace": "tranche-system"},
        "spec": {"epoch": int(epoch), "identity": identity},
    }
    kubectl.apply(control_plane, lead)
    kubectl.apply(control_plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait.until(
        lambda: kubectl.run(control_plane, "-n", NAMESPACE, "get", "serviceaccount", "default", "--ignore-not-found"),
        what=f"ServiceAccount default in {NAMESPACE}",
        timeout_s=60,
    )
    yield control_plane
    kubectl.run(control_plane, "-n", "tranche-system", "delete", "leadership", "tranche-scheduler")


@pytest.fixture
async def api(server: Layout) -> AsyncIterator[Api]:
    """The API, as the scheduler."""
    identity = kubeconfig.service_account_kubeconfig(server, namespace="tranche-system", name="tranche-scheduler")
    async with connect(kubeconfig=str(identity)) as connection:
        yield Api(connection, timeout=5)


def create(server: Layout, name: str) -> Pod:
    """Create a pod that nobody schedules and answer it as the scheduler would see it."""
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
    """Answer a pod as it is now."""
    return msgspec.convert(kubectl.get(server, "-n", NAMESPACE, "pod", name), Pod)


async def bind(api: Api, pod: Pod, decision: Chosen | None = None) -> Result:
    """Bind as who leads; an API server that has just started, or heard of it, learns about that first."""
    binder = Binder(api, token=TOKEN, timeout_seconds=2)
    async with asyncio.timeout(60):
        while True:
            result = await binder.bind(pod, decision or chosen())
            if "no params found" not in result.note:
                return result
            await asyncio.sleep(0.05)


async def test_node_and_allocation_arrive_together(server: Layout, api: Api) -> None:
    """One write sets both."""
    result = await bind(api, create(server, "bound"))
    assert result.outcome is Outcome.BOUND
    pod = kubectl.get(server, "-n", NAMESPACE, "pod", "bound")
    assert pod["spec"]["nodeName"] == "n1"
    assert "GPU-n1-0" in pod["metadata"]["annotations"][ALLOCATION]
    assert pod["metadata"]["annotations"]["cuda-visible-devices.gpu.scheduling/main"] == "GPU-n1-0"
    assert pod["metadata"]["annotations"]["gpu.scheduling/leader"] == TOKEN


async def test_a_repeated_binding_is_the_first_one(server: Layout, api: Api) -> None:
    """After a lost answer the same Binding is sent again: the conflict it meets is its own success."""
    pod = create(server, "repeated")
    assert (await bind(api, pod)).outcome is Outcome.BOUND
    assert (await bind(api, pod)).outcome is Outcome.BOUND


async def test_a_deleted_pod_is_gone(server: Layout, api: Api) -> None:
    """Deleted between decision and Binding."""
    pod = create(server, "deleted")
    kubectl.run(server, "delete", "pod", "deleted", "-n", NAMESPACE, "--force", "--grace-period=0")
    assert (await bind(api, pod)).outcome is Outcome.GONE


async def test_a_recreated_pod_is_another_one(server: Layout, api: Api) -> None:
    """The same name, another UID: the Binding does not touch it."""
    old = create(server, "again")
    new = create(server, "again")
    assert old.uid != new.uid
    assert (await bind(api, old)).outcome is Outcome.GONE
    assert read(server, "again").spec.node_name == ""


async def test_a_pod_that_somebody_else_bound_is_taken(server: Layout, api: Api) -> None:
    """On another node, or with another allocation: not ours."""
    pod = create(server, "taken")
    assert (await bind(api, pod, chosen("n2"))).outcome is Outcome.BOUND
    assert (await bind(api, pod)).outcome is Outcome.TAKEN
    other = chosen("n2")
    other = Chosen("n2", REQUEST, Allocation("n2", {"main": (CardShare("GPU-n2-5", 5, 100, 0),)}), "")
    assert (await bind(api, pod, other)).outcome is Outcome.TAKEN


async def test_a_gated_pod_is_refused(server: Layout, api: Api) -> None:
    """A gate that came after the decision: the API server's conflict is an answer, not a reason to ask for ever."""
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


async def test_an_unknown_outcome_is_asked_for_until_it_is_known(server: Layout, api: Api) -> None:
    """The API server is away when the Binding is sent: it is sent again until it is taken, once."""
    pod = create(server, "patient")
    Daemon(server, "kube-apiserver").stop()
    try:
        binding = asyncio.create_task(bind(api, pod))
        # Nothing listens now, so the first attempt fails before the server is back.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(binding)
    finally:
        await asyncio.to_thread(control_plane_module.start_apiserver, server)
    assert (await binding).outcome is Outcome.BOUND
    assert read(server, "patient").spec.node_name == "n1"


async def test_a_refusal_is_told_in_the_servers_words(server: Layout) -> None:
    """An identity that may not bind: not repeated, and the reason is kept for the event."""
    pod = create(server, "refused")
    identity = kubeconfig.service_account_kubeconfig(server, namespace=NAMESPACE, name="default")
    async with connect(kubeconfig=str(identity)) as connection:
        result = await bind(Api(connection), pod)
    assert result.outcome is Outcome.REFUSED
    assert 'cannot create resource "pods/binding"' in result.note
    assert read(server, "refused").spec.node_name == ""
