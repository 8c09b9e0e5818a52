"""A term as the process builds it: the way of a pod, and what limits it.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/informers.py` that connects its part.
"""

from __future__ import annotations

import asyncio
from typing import Any

from allocation.inventory import Card
from allocation.names import CHARGED_TO, LEADER
from tests.scheduler.support.memory_api import refusing
from tests.scheduler.support.terms import NAMESPACE, TOKEN, Cluster, leading

TEAM = "team"


async def test_pod_is_bound_with_the_token_and_the_environment_of_its_node(cluster: Cluster) -> None:
    """The Binding carries the leader's token, and the cards as the node delivers them."""
    cluster.node("n0", delivery={"mode": "nvidia-nri", "hasNriSocket": True})
    async with leading(cluster):
        cluster.pod("p")
        annotations = (await cluster.placed("p"))["metadata"]["annotations"]
        assert annotations[LEADER] == TOKEN
        assert annotations["nvidia.cdi.k8s.io/container.main"].startswith("nvidia.com/gpu=GPU-n0-")
        event = await cluster.event("FilteringSucceed")
        assert event["regarding"]["name"] == "p"
        assert cluster.metric("tranche_scheduler_terms_total") == 1


async def test_pods_of_an_alias_are_scheduled_and_others_are_not(cluster: Cluster) -> None:
    """The aliases are those of the settings."""
    async with leading(cluster, aliases=("hami-scheduler",)):
        cluster.pod("foreign", schedulerName="other")
        cluster.pod("alias", schedulerName="hami-scheduler")
        await cluster.placed("alias")
        assert not cluster.shown("foreign")["spec"].get("nodeName")


async def test_nobody_is_bound_without_trust(cluster: Cluster) -> None:
    """A leader that may not write any more ends its term."""
    async with leading(cluster):
        cluster.pod("first")
        await cluster.placed("first")
        cluster.is_trusted = False
        cluster.pod("second")
        await cluster.until(lambda: cluster.is_over, "end of the term")
        assert not cluster.shown("second")["spec"].get("nodeName")


async def test_refused_binding_is_counted_and_tried_again(cluster: Cluster) -> None:
    """The metric has the kind of the error, and the queue its pod back."""
    cluster.api.on_write = refusing("/binding")
    async with leading(cluster):
        cluster.pod("p")
        await cluster.event("BindingFailed", "refused by the test")
        assert cluster.metric("tranche_scheduler_bind_errors_total", kind="refused") > 0
        cluster.api.on_write = lambda _method, _path: None
        await cluster.placed("p")


async def test_pod_that_fits_nowhere_says_why_and_follows_when_cards_appear(cluster: Cluster) -> None:
    """Changes of nodes and reports reach the queue."""
    async with leading(cluster):
        cluster.pod("large", gpu=3)
        await cluster.waits("large", "NodeInsufficientDevice")
        cluster.node("n1", count=4)
        assert (await cluster.placed("large"))["spec"]["nodeName"] == "n1"


async def test_node_without_a_driver_keeps_its_pods_and_takes_no_other(cluster: Cluster) -> None:
    """The cards that it had last stay counted with their pods; it takes pods again when its driver is back."""
    async with leading(cluster):
        cluster.pod("runs")
        await cluster.placed("runs")
        problem = {"state": "DriverMissing", "message": "nvmlInit: Driver Not Loaded"}
        cluster.node(
            "n0", *(Card(f"GPU-n0-{index}", index, 1000, slots=4, healthy=False) for index in (0, 1)), **problem
        )
        cluster.pod("waits")
        await cluster.waits("waits", "DriverMissing: the cards of node n0 cannot be used: nvmlInit: Driver Not Loaded")
        assert cluster.term.state.ledger.used.sum(axis=(1, 2)).tolist()[0] == 100
        cluster.node("n0")
        await cluster.placed("waits")


async def test_deleted_node_takes_no_pod(cluster: Cluster) -> None:
    """Nor does one whose report or whose agent's Lease is gone."""
    cluster.node("n1")
    async with leading(cluster):
        cluster.api.remove("nodes", "n0")
        cluster.api.remove("gpunodestatuses", "n1")
        cluster.pod("p")
        await cluster.waits("p", "no available node")
        cluster.node("n2")
        assert (await cluster.placed("p"))["spec"]["nodeName"] == "n2"


async def test_resource_quota_holds_until_it_is_deleted(cluster: Cluster) -> None:
    """Kubernetes does not count what admission fills in later, so the scheduler does."""
    spec = {"hard": {"limits.nvidia.com/gpumem": "150"}}
    async with leading(cluster):
        cluster.api.put("resourcequotas", {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": spec})
        cluster.pod("first")
        await cluster.placed("first")
        cluster.pod("second")
        await cluster.waits("second", "ResourceQuotaNotFit")
        cluster.api.remove("resourcequotas", "q", NAMESPACE)
        await cluster.placed("second")


async def test_gpu_quota_holds_and_has_a_status(cluster: Cluster) -> None:
    """Until it is deleted."""
    spec = {"total": {"maxPods": 1}}
    async with leading(cluster):
        cluster.api.put("gpuquotas", {"metadata": {"name": "q", "namespace": NAMESPACE, "generation": 1}, "spec": spec})
        cluster.pod("first")
        await cluster.placed("first")
        cluster.pod("second")
        await cluster.waits("second", "PodQuotaNotFit")
        await cluster.wrote("PATCH", "/gpuquotas/q/status")
        cluster.api.remove("gpuquotas", "q", NAMESPACE)
        await cluster.placed("second")


async def test_queue_is_charged_and_has_a_status(cluster: Cluster) -> None:
    """A suspended queue keeps its pods waiting, until it is deleted."""
    spec: dict[str, Any] = {"namespaceSelector": {}}
    async with leading(cluster):
        cluster.api.put("gpuqueues", {"metadata": {"name": "research", "generation": 1}, "spec": spec})
        labels = {"gpu.scheduling/queue": "research"}
        cluster.pod("first", labels=labels)
        assert (await cluster.placed("first"))["metadata"]["annotations"][CHARGED_TO] == "research"
        await cluster.wrote("PATCH", "/gpuqueues/research/status")
        cluster.api.put(
            "gpuqueues", {"metadata": {"name": "research", "generation": 2}, "spec": {**spec, "suspended": True}}
        )
        cluster.pod("second", labels=labels)
        await cluster.waits("second", "suspended")


async def test_labels_of_the_namespace_name_its_queue(cluster: Cluster) -> None:
    """And a changed label counts for the next pod."""
    cluster.api.put("gpuqueues", {"metadata": {"name": "research"}, "spec": {"namespaceSelector": {}}})
    async with leading(cluster):
        cluster.api.put("namespaces", {"metadata": {"name": TEAM, "labels": {"gpu.scheduling/queue": "research"}}})
        cluster.pod("p", namespace=TEAM)
        assert (await cluster.placed("p", TEAM))["metadata"]["annotations"][CHARGED_TO] == "research"
        queue = "the namespaces of the queue"
        await cluster.until(lambda: _status("research", cluster).get("namespaces") == 1, queue)


async def test_reasons_that_are_written_slowly_delay_no_other_pod(cluster: Cluster) -> None:
    """Conditions of one tenant's 100 different pods hang in the API server; another's pod is bound, another's says why.

    Reasons and Bindings do not wait for each other, and of two tenants each has its turn.
    """
    cluster.api.held[f"/namespaces/{TEAM}/"] = asyncio.Event()
    async with leading(cluster, concurrent_binds=1):
        for number in range(100):
            cluster.pod(f"pending-{number}", memory=1001 + number, namespace=TEAM)
        unschedulable = "tranche_scheduler_decisions_total"
        await cluster.until(lambda: cluster.metric(unschedulable, outcome="unschedulable") == 100, "100 decisions")
        cluster.pod("modest")
        await cluster.placed("modest")
        for released in cluster.api.held.values():
            released.set()
        cluster.pod("large", memory=1001)
        await cluster.waits("large", "CardInsufficientMemory")


def _status(queue: str, cluster: Cluster) -> dict[str, Any]:
    """Return the status of a queue, empty before it has one."""
    status: dict[str, Any] = cluster.api.get_object("gpuqueues", queue).get("status") or {}
    return status
