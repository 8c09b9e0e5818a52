"""A simulated kubelet ends a pod as a real one does, on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.api import MERGE_PATCH, Api
from cluster.connect import connect
from cluster.informer import Informer
from cluster.resource import NODES, PODS
from lab.simulated import Kubelets
from lab.simulated_pods import Pod
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE = "simulated-pods"
NODE = "simulated"
HOUR = 3600


class Pods:
    """The pods of the namespace, as a watch shows them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.phases: dict[str, list[str]] = {}
        self._changed = asyncio.Event()
        self.informer = Informer(
            api, PODS, Pod, on_upsert=self._on_upsert, on_delete=lambda _: self._changed.set(), namespace=NAMESPACE
        )

    def _on_upsert(self, pod: Pod, _old: Pod | None) -> None:
        self.phases.setdefault(pod.metadata.name, []).append(pod.status.phase)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._changed.wait()
                self._changed.clear()

    async def run(self, name: str, *, finalizers: tuple[str, ...] = (), **spec: Any) -> None:
        """Create a pod on the node, and wait until it runs."""
        metadata = {"name": name, "namespace": NAMESPACE, "finalizers": finalizers}
        main = {"name": "main", "image": "none", **spec.pop("main", {})}
        body = {"metadata": metadata, "spec": {"nodeName": NODE, "containers": [main], **spec}}
        await self.api.create(PODS, body, namespace=NAMESPACE)
        await self.until(lambda: self.phases.get(name, [""])[-1] == "Running")

    async def delete(self, name: str, **options: Any) -> None:
        """Delete a pod, without waiting for its end."""
        await self.api.request("DELETE", PODS.path(namespace=NAMESPACE, name=name), body=options)

    def is_gone(self, name: str) -> bool:
        """Whether a pod does not exist any more."""
        return self.informer.get(name, NAMESPACE) is None


@pytest.fixture
async def pods(control_plane: Layout) -> AsyncIterator[Pods]:
    """A namespace with a simulated node."""
    await asyncio.to_thread(namespaces.create, control_plane, NAMESPACE)
    async with connect(program="tranche-test", kubeconfig=str(control_plane.kubeconfig)) as connection:
        made = Pods(Api(connection))
        tasks = [asyncio.create_task(each) for each in (Kubelets(connection, [NODE]).run(), made.informer.run())]
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await made.api.request("DELETE", NODES.path(name=NODE))


async def test_containers_and_phase_end_before_the_pod_goes(pods: Pods) -> None:
    """Its containers are terminated and its phase is final while a finalizer keeps the object; then it goes."""
    init = [{"name": "first", "image": "none"}, {"name": "side", "image": "none", "restartPolicy": "Always"}]
    await pods.run("kept", finalizers=("tests.tranche.local/kept",), initContainers=init)
    await pods.delete("kept")
    await pods.until(lambda: pods.phases["kept"][-1] == "Failed")
    found = await pods.api.get(PODS, dict, name="kept", namespace=NAMESPACE)
    assert found["metadata"]["deletionTimestamp"]
    states = [*found["status"]["initContainerStatuses"], *found["status"]["containerStatuses"]]
    assert [(each["name"], each["state"]["terminated"]["exitCode"], each["ready"]) for each in states] == [
        ("first", 0, True),
        ("side", 143, False),
        ("main", 143, False),
    ]
    path = PODS.path(namespace=NAMESPACE, name="kept")
    await pods.api.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    await pods.until(lambda: pods.is_gone("kept"))


async def test_pod_that_is_deleted_at_once_does_not_run_again_after_it_ended(pods: Pods) -> None:
    """The report that it runs may still be under way when it is deleted, but never comes after its end."""
    names = [f"brief{number}" for number in range(20)]

    async def create_and_delete(name: str) -> None:
        spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]}
        await pods.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE)
        await pods.delete(name, gracePeriodSeconds=1)

    await asyncio.gather(*(create_and_delete(name) for name in names))
    await pods.until(lambda: all(name in pods.phases and pods.is_gone(name) for name in names))
    assert {name: after for name in names if set(after := phases_after_the_end(pods.phases[name])) > {"Failed"}} == {}


def phases_after_the_end(phases: list[str]) -> list[str]:
    """Return the phases from the first that is final."""
    return phases[phases.index("Failed") :] if "Failed" in phases else []


async def test_pod_runs_for_its_grace_period_while_its_hook_sleeps(pods: Pods) -> None:
    """It keeps running after its deletion, for an hour; a second deletion with less grace ends it."""
    slow = {"lifecycle": {"preStop": {"sleep": {"seconds": HOUR}}}}
    await pods.run("slow", terminationGracePeriodSeconds=HOUR, main=slow)
    await pods.run("quick")
    for name in ("slow", "quick"):
        await pods.delete(name)
    await pods.until(lambda: pods.is_gone("quick"))
    assert not pods.is_gone("slow")
    assert set(pods.phases["slow"]) <= {"Pending", "Running"}
    assert pods.phases["quick"][-1] == "Failed"
    await pods.delete("slow", gracePeriodSeconds=1)
    await pods.until(lambda: pods.is_gone("slow"))
    assert pods.phases["slow"][-1] == "Failed"
