"""Pods that are handed over, with each other feature that decides where pods go: it counts them like those of the loop.

docs/resource-claims.md has the table. Reclaim is in `preemption/test_reclaim.py`, consolidation in
`consolidation/test_planner.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from allocation.names import ALLOCATION, APP_NAME, APP_OWNER, CHARGED_TO, CLAIM, GANG, GANG_MIN_MEMBERS, QUEUE, RESIZE
from allocation.settings import BindingSettings
from tests.scheduler.support.handing_over import (
    CLAIMS,
    bound,
    hand_over,
    handing_over,
    is_retried,
    offered,
)
from tests.scheduler.support.resizing import Resizing
from tests.scheduler.support.terms import NAMESPACE, Cluster
from tests.scheduler.term.test_expansion import GROUP, expanding, placeholders

APP = {APP_NAME: "render", APP_OWNER: "alice"}


def member(gang: str, size: int = 2) -> dict[str, Any]:
    """Return the fields of a pod of a gang."""
    return {"annotations": {GANG: gang, GANG_MIN_MEMBERS: str(size)}}


async def test_quotas_count_pods_of_both(cluster: Cluster) -> None:
    """Whichever comes second waits for the first, and follows it."""
    quota = {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": {"total": {"maxPods": 1}}}
    cluster.api.put("gpuquotas", quota)
    async with handing_over(cluster):
        await hand_over(cluster, "claims")
        assert await bound(cluster, "claims") == ""
        cluster.pod("plain")
        await cluster.waits("plain", "PodQuotaNotFit")
        cluster.end("claims")
        await cluster.placed("plain")
        await hand_over(cluster, "second")
        assert await offered(cluster, "second", "n0") == ()
        assert "PodQuotaNotFit" in await bound(cluster, "second")
        cluster.end("plain")
        await cluster.until(lambda: is_retried(cluster, "second"), "another attempt")


async def test_queues_count_pods_of_both(cluster: Cluster) -> None:
    """A queue that may run one pod runs one, whoever places it, and is charged for it."""
    spec = {"namespaceSelector": {}, "maxInstances": 1}
    cluster.api.put("gpuqueues", {"metadata": {"name": "research"}, "spec": spec})
    labels = {QUEUE: "research"}
    async with handing_over(cluster):
        await hand_over(cluster, "claims", labels=labels)
        assert await bound(cluster, "claims") == ""
        assert cluster.shown("claims")["metadata"]["annotations"][CHARGED_TO] == "research"
        cluster.pod("plain", labels=labels)
        await cluster.waits("plain", "research")
        cluster.end("claims")
        await cluster.placed("plain")
        await hand_over(cluster, "second", labels=labels)
        assert await offered(cluster, "second", "n0") == ()
        cluster.end("plain")
        await cluster.until(lambda: is_retried(cluster, "second"), "another attempt")


async def test_gpu_claim_of_a_pod_that_is_handed_over_is_bound(cluster: Cluster) -> None:
    """Its cards have Leases, so they are closed for others, and its status names the pod until that ends."""
    claim = {"metadata": {"name": "one", "namespace": NAMESPACE}, "spec": {"devices": {"count": 1}}}
    cluster.api.put("gpuclaims", claim)

    def phase() -> str:
        return str(cluster.api.get_object("gpuclaims", "one", NAMESPACE).get("status", {}).get("phase"))

    def leases() -> list[str]:
        return [name for each in cluster.api.all("leases") if (name := each["metadata"]["name"]).startswith("gpu-")]

    async with handing_over(cluster):
        await hand_over(cluster, "claims", memory=None, annotations={CLAIM: "missing"})
        assert await offered(cluster, "claims", "n0") == ()
        await hand_over(cluster, "second", memory=None, annotations={CLAIM: "one"})
        assert await offered(cluster, "second", "n0") == ("n0",)
        assert await bound(cluster, "second") == ""
        assert len(leases()) == 1
        await cluster.until(lambda: phase() == "Bound", "bound claim")
        cluster.end("second")
        await cluster.until(lambda: not leases(), "end of the Lease")


async def test_pod_that_is_handed_over_gets_the_card_of_its_binding(cluster: Cluster) -> None:
    """And none without a GPUBinding; kube-scheduler, which watches none, tries it again when there is one."""
    binding = {"metadata": {"name": "b"}, "spec": {"uuid": "GPU-n0-1", "appName": "render", "podSelector": {}}}
    async with handing_over(cluster, bindings=BindingSettings("labelled")):
        await hand_over(cluster, "claims", labels=APP)
        assert await offered(cluster, "claims", "n0") == ()
        cluster.api.put("gpubindings", binding)
        await cluster.until(lambda: is_retried(cluster, "claims"), "another attempt")
        assert await bound(cluster, "claims") == ""
        assert "GPU-n0-1" in cluster.shown("claims")["metadata"]["annotations"][ALLOCATION]


async def test_pod_that_was_handed_over_is_resized() -> None:
    """Once it runs it is a pod like others; what is held for one that waits is not free for growth."""
    cluster = Resizing()
    cluster.node("n0", count=1)
    async with handing_over(cluster, resize=True):
        await hand_over(cluster, "claims", annotations={RESIZE: '{"main":{"gpumem":600}}'})
        assert await bound(cluster, "claims") == ""
        cluster.report("claims", observed=1, container="first")
        await cluster.until(lambda: cluster.share("claims").memory_mib == 600, "another size")


async def test_node_is_asked_for_a_pod_that_is_handed_over(cluster: Cluster) -> None:
    """Once `/filter` has rejected it for its cards."""
    templates = [{**GROUP, "memory_mib": 2000}]
    async with handing_over(cluster, expander=expanding(templates=templates)):
        await hand_over(cluster, "claims", memory=1500)
        assert placeholders(cluster) == []
        assert await offered(cluster, "claims", "n0") == ()
        await cluster.until(lambda: bool(placeholders(cluster)), "request")


async def test_pod_that_is_handed_over_preempts_for_cards() -> None:
    """It waits in kube-scheduler's queue, and those of the loop in theirs; both are looked at."""
    cluster = Cluster()
    cluster.node("n0", count=1)
    async with handing_over(cluster):
        cluster.pod("low", memory=None)
        await cluster.placed("low")
        await cluster.until(lambda: "uid-low" in cluster.term.state.running, "running pod")
        await hand_over(cluster, "urgent", memory=None, priority=1000)
        assert await offered(cluster, "urgent", "n0") == ()
        await cluster.wrote("POST", "/pods/low/eviction")
        cluster.end("low")
        await cluster.until(lambda: is_retried(cluster, "urgent"), "another attempt")
        assert await bound(cluster, "urgent") == ""


async def test_gang_of_pods_that_are_handed_over_gathers(cluster: Cluster) -> None:
    """At /bind, as in extender mode; a gang of which only some pods have claims waits, and says why."""
    async with handing_over(cluster):
        for name in ("a", "b"):
            cluster.pod(name, **CLAIMS, **member("whole"))
        await cluster.until(lambda: len(cluster.term.state.handed_over) == 2, "waiting pods")
        for name in ("a", "b"):
            assert await offered(cluster, name, "n0") == ("n0",)
        assert await asyncio.gather(*(bound(cluster, name) for name in ("a", "b"))) == ["", ""]
        cluster.pod("c", **CLAIMS, **member("mixed"))
        cluster.pod("d", **member("mixed"))
        await cluster.waits("d", "give all of them resourceClaims, or none")
        assert await offered(cluster, "c", "n0") == ()
        assert "give all of them" in await bound(cluster, "c")


async def test_pod_that_was_handed_over_is_preempted() -> None:
    """For a pod of the loop, which then gets the card."""
    cluster = Cluster()
    cluster.node("n0", count=1)
    async with handing_over(cluster):
        await hand_over(cluster, "claims", memory=None)
        assert await bound(cluster, "claims") == ""
        cluster.pod("urgent", memory=None, priority=1000)
        await cluster.wrote("POST", "/pods/claims/eviction")
        cluster.end("claims")
        await cluster.placed("urgent")


async def test_what_is_held_for_a_pod_is_held_after_a_gang_of_the_loop_was_tried() -> None:
    """The gang is of higher priority, so its first pod takes the cards that are held; but there are too few for all."""
    cluster = Cluster()
    cluster.node("n0", count=1)
    async with handing_over(cluster):
        cluster.pod("low", memory=500)
        await cluster.placed("low")
        await hand_over(cluster, "urgent", memory=None, priority=1000)
        assert await offered(cluster, "urgent", "n0") == ()
        await cluster.wrote("POST", "/pods/low/eviction")
        holds = cluster.term.state.holds
        held = holds.of("uid-urgent")
        assert held is not None
        for number in range(3):
            cluster.pod(f"m{number}", memory=400, priority=2000, **member("train", size=3))
        await cluster.waits("m0", "1 of the 3 pods that gang default/train needs have a place")
        async with cluster.term.state.turn:  # while a gang is tried, it is missing for moments
            assert holds.of("uid-urgent") is held
        cluster.pod("plain", memory=300)
        await cluster.waits("plain", "CardInsufficientMemory")
        cluster.end("low")
        await cluster.until(lambda: is_retried(cluster, "urgent"), "another attempt")
        assert await bound(cluster, "urgent") == ""


async def test_what_is_held_for_a_pod_is_held_after_a_gang_of_its_kind_was_rehearsed(cluster: Cluster) -> None:
    """A gang of which all pods are handed over is evaluated as a whole when its first pod comes to /filter."""
    async with handing_over(cluster):
        for name in ("low-0", "low-1"):
            cluster.pod(name, memory=500)
            await cluster.placed(name)
        await hand_over(cluster, "urgent", gpu=2, memory=None, priority=1000)
        assert await offered(cluster, "urgent", "n0") == ()
        await cluster.wrote("POST", "/pods/low-0/eviction")
        holds = cluster.term.state.holds
        held = holds.of("uid-urgent")
        assert held is not None
        for number in range(3):
            await hand_over(cluster, f"m{number}", memory=400, priority=2000, **member("train", size=3))
        assert await offered(cluster, "m0", "n0") == ()
        assert "2 of the 3 pods that gang default/train needs have a place" in await bound(cluster, "m0")
        async with cluster.term.state.turn:  # while a gang is tried, it is missing for moments
            assert holds.of("uid-urgent") is held
