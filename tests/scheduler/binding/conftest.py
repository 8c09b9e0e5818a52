"""An API server with the project's policies and a leader, for tests of what the scheduler writes."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import FENCED_LABEL, SYSTEM_NAMESPACE
from allocation.request import PodRequest
from cluster.api import Api
from cluster.connect import connect
from cluster.errors import ClusterError, NotFoundError
from cluster.lease import Lease
from cluster.resource import LEADERSHIPS, LEASES, PODS
from lab import kubeconfig, kubectl, manifests
from lab.client import client
from scheduler.binding.binder import Binder
from scheduler.cycle.result import Scheduled
from scheduler.fenced_api import with_token
from scheduler.leases.device_lease import LeasedPod, planned
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.leasing import allocation
from tests.support import namespaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lab.layout import Layout

NAMESPACES = ("leases-a", "leases-b")
_EPOCHS = itertools.count(1000)
"""Above those of other tests on the same API server; the epoch of the fence only grows."""


class LeaseServer:
    """The API as the scheduler and as an administrator, and the pods and Leases of a test."""

    def __init__(self, layout: Layout, api: Api, admin: Api) -> None:
        self.layout = layout
        self.api = api
        self.admin = admin
        self._serial = itertools.count()

    async def lead(self, identity: str = "leader") -> str:
        """Raise the fence for another leader, wait until the API server enforces it, and return the token."""
        epoch = next(_EPOCHS)
        body = {
            "apiVersion": LEADERSHIPS.api_version,
            "kind": LEADERSHIPS.kind,
            "metadata": {"name": "tranche-scheduler", "namespace": SYSTEM_NAMESPACE},
            "spec": {"epoch": epoch, "identity": identity},
        }
        await self.admin.apply(LEADERSHIPS, body, name="tranche-scheduler", namespace=SYSTEM_NAMESPACE, manager="test")
        token = f"{epoch}/{identity}"
        (plan,) = planned(LeasedPod("none", "none", "none", allocation(0, node="probe")), None)
        probe = with_token(plan.body(unix=0.0), token)
        assert probe["metadata"]["labels"][FENCED_LABEL] == "true"
        path = LEASES.path(namespace=SYSTEM_NAMESPACE)
        async with asyncio.timeout(30):
            while True:
                try:
                    await self.api.request("POST", path, params={"dryRun": "All"}, body=probe)
                except ClusterError:
                    await asyncio.sleep(0.02)
                else:
                    return token

    async def pod(self, name: str = "", *, namespace: str = NAMESPACES[0]) -> Pod:
        """Create a pod that no scheduler binds, and return it as the scheduler would see it."""
        name = name or f"p{next(self._serial)}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
        }
        return msgspec.json.decode(await self.admin.create(PODS, body, namespace=namespace), type=Pod)

    async def bind(self, pod: Pod, token: str, *cards: int) -> Pod:
        """Bind a pod to exclusive cards, and return it as it is then."""
        chosen = Scheduled("n1", PodRequest(()), allocation(*cards), "")
        result = await Binder(fenced(self.api, token=token, timeout_seconds=5)).bind(pod, chosen)
        assert result.outcome is Outcome.BOUND, result.note
        return await self.admin.get(PODS, Pod, name=pod.metadata.name, namespace=pod.metadata.namespace)

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a pod at once, as the kubelet of its node does."""
        node = pod.spec.node_name
        identity = (f"--as=system:node:{node}", "--as-group=system:nodes") if node else ()
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}?gracePeriodSeconds=0"
        await asyncio.to_thread(kubectl.run, self.layout, "delete", "--raw", path, *identity)

    async def finish(self, pod: Pod, phase: str) -> None:
        """Write a pod's phase, as the kubelet of its node does."""
        namespace, name = pod.metadata.namespace, pod.metadata.name
        changed = await asyncio.to_thread(client(self.layout).get, "pod", name, namespace=namespace)
        changed["status"]["phase"] = phase
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        identity = ("--as=system:node:n1", "--as-group=system:nodes")
        await asyncio.to_thread(
            kubectl.run, self.layout, "replace", "--raw", path, "-f", "-", *identity, stdin=json.dumps(changed)
        )

    async def leases(self) -> dict[str, Lease]:
        """Return the Leases of cards."""
        found = await self.admin.list(LEASES, Lease, namespace=SYSTEM_NAMESPACE)
        return {each.metadata.name: each for each in found if each.is_of_a_card}

    async def lease(self, name: str) -> dict[str, Any]:
        """Return a Lease as the API server shows it."""
        body = await self.admin.request("GET", LEASES.path(namespace=SYSTEM_NAMESPACE, name=name))
        content: dict[str, Any] = json.loads(body)
        return content

    async def clear(self) -> None:
        """Delete the pods and the Leases of a test."""
        for name in await self.leases():
            try:
                await self.admin.request("DELETE", LEASES.path(namespace=SYSTEM_NAMESPACE, name=name))
            except NotFoundError:
                continue
        for namespace in NAMESPACES:
            for pod in await self.admin.list(PODS, Pod, namespace=namespace):
                await self.delete_pod(pod)


@pytest.fixture(scope="module")
def lease_layout(control_plane: Layout) -> Iterator[Layout]:
    """The suite's API server with the project's policies, and two namespaces."""
    manifests.install(control_plane)
    client(control_plane).apply(
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES)
    )
    namespaces.usable(control_plane, *NAMESPACES)
    yield control_plane
    client(control_plane).delete("leadership", "tranche-scheduler", namespace=SYSTEM_NAMESPACE, missing_ok=True)


@pytest.fixture
async def server(lease_layout: Layout) -> AsyncIterator[LeaseServer]:
    """The API server, without pods and Leases of cards before and after the test."""
    identity = kubeconfig.service_account_kubeconfig(lease_layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler")
    async with (
        connect(program="tranche-test", kubeconfig=str(identity)) as connection,
        connect(program="tranche-test", kubeconfig=str(lease_layout.kubeconfig)) as admin,
    ):
        made = LeaseServer(lease_layout, Api(connection, timeout=5), Api(admin))
        await made.clear()
        yield made
        await made.clear()
