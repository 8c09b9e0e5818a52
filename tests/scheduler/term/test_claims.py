"""A term as the process builds it: claims, Leases and GPUBindings.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/informers.py` that connects its part.
"""

from __future__ import annotations

from typing import Any

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, APP_NAME, APP_OWNER, CLAIM, LEADER
from allocation.settings import BindingSettings
from scheduler.fenced_api import with_token
from scheduler.leases.device_lease import LeasedPod, PlannedLease
from tests.scheduler.support.terms import NAMESPACE, TOKEN, Cluster, leading

APP = {APP_NAME: "render", APP_OWNER: "alice"}


async def test_claim_is_bound_with_a_lease_for_each_card(cluster: Cluster) -> None:
    """The Lease has the leader's token and goes with the pod; the status of the claim says what it has."""
    claim = {"metadata": {"name": "one", "namespace": NAMESPACE}, "spec": {"devices": {"count": 1}}}
    async with leading(cluster):
        cluster.api.put("gpuclaims", claim)
        cluster.pod("p", memory=None, annotations={CLAIM: "one"})
        await cluster.placed("p")

        def leases() -> list[dict[str, Any]]:
            return [each for each in cluster.api.all("leases") if each["metadata"]["name"].startswith("gpu-")]

        (lease,) = leases()
        assert lease["metadata"]["annotations"][LEADER] == TOKEN
        await cluster.until(
            lambda: cluster.api.get_object("gpuclaims", "one", NAMESPACE).get("status", {}).get("phase") == "Bound",
            "bound claim",
        )
        cluster.end("p")
        await cluster.until(lambda: not leases(), "end of the Lease")


async def test_lease_of_a_pod_that_is_gone_is_deleted(cluster: Cluster) -> None:
    """It closes its card no longer, although another leader has created it."""
    pod = LeasedPod(NAMESPACE, "gone", "uid-gone", Allocation("n0", {"main": (CardShare("GPU-n0-0", 0, 1000, 0),)}))
    plan = PlannedLease("gpu-n0-0", "GPU-n0-0", pod)
    cluster.api.put("leases", with_token(plan.body(unix=0.0), "6/former"))
    async with leading(cluster):
        await cluster.wrote("DELETE", "/leases/gpu-n0-0")


async def test_pod_gets_the_card_of_its_binding(cluster: Cluster) -> None:
    """A binding that is deleted gives none to the next pod."""
    binding = {"metadata": {"name": "b"}, "spec": {"uuid": "GPU-n0-1", "appName": "render", "podSelector": {}}}
    async with leading(cluster, bindings=BindingSettings("labelled")):
        cluster.api.put("gpubindings", binding)
        cluster.pod("first", labels=APP)
        assert "GPU-n0-1" in (await cluster.placed("first"))["metadata"]["annotations"][ALLOCATION]
        cluster.api.remove("gpubindings", "b")
        cluster.pod("second", labels=APP)
        await cluster.waits("second", "no card bound")


async def test_last_look_before_the_binding_sees_a_binding_that_is_gone(cluster: Cluster) -> None:
    """The scheduler's copy still has it: its watch is late."""
    binding = {"metadata": {"name": "b"}, "spec": {"uuid": "GPU-n0-1", "appName": "render", "podSelector": {}}}
    cluster.api.put("gpubindings", binding)
    async with leading(cluster, bindings=BindingSettings("labelled")):
        cluster.api.late.add("gpubindings")
        cluster.api.remove("gpubindings", "b")
        cluster.pod("p", labels=APP)
        await cluster.event("GpuBindingChanged", "GPUBinding b was deleted")
        assert not cluster.shown("p")["spec"].get("nodeName")
