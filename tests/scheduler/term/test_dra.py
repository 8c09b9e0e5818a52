"""A term beside a DRA driver, as the process builds it.

Each test fails without the line of `scheduler/term_builder.py`, `scheduler/informers.py` or
`scheduler/state/cluster_state.py` that connects its part.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cluster.errors import ApiError, NotFoundError
from scheduler.extender import wire
from scheduler.observation_settings import DraSettings
from tests.scheduler.support import builders as pods
from tests.scheduler.support import dra, extending
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading

if TYPE_CHECKING:
    from scheduler.extender.verbs import Extender

REMEDY = "DeviceClass gpu.nvidia.com satisfies nvidia.com/gpu, too: remove its extendedResourceName"
CLAIM = "p-extended-resources-x"


class Without(MemoryApi):
    """An API server that answers requests for resource.k8s.io with an error."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Refuse, or serve the request."""
        if path.startswith("/apis/resource.k8s.io/"):
            kind = NotFoundError if self.status == 404 else ApiError
            raise kind(request=path, status=self.status, reason="no", message="not here")
        return await super().request(method, path, **how)


def extender_of(cluster: Cluster) -> Extender:
    """Return the verbs of a term."""
    assert cluster.term.extender is not None
    return cluster.term.extender


async def filtered(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the response of `/filter` for a pod, as kube-scheduler sends it."""
    body = msgspec.json.encode({"Pod": cluster.shown(name), "Nodes": None, "NodeNames": ("n0",)})
    answer: dict[str, Any] = msgspec.json.decode(wire.encode(await extender_of(cluster).filter(wire.decode_args(body))))
    return answer


def let_kube_scheduler_allocate(cluster: Cluster) -> None:
    """Write the claim and the pod's status, which the watch does not show any more."""
    cluster.api.late.add("pods")
    cluster.api.put("resourceclaims", {"metadata": {"name": CLAIM, "namespace": NAMESPACE}})
    cluster.api.put("pods", {**cluster.shown("p"), "status": {"phase": "Pending", **dra.allocated(CLAIM)}})


async def test_pod_with_a_device_that_the_cache_does_not_show_yet_is_not_bound(cluster: Cluster) -> None:
    """While a class satisfies the resource, `/bind` reads the pod."""
    cluster.pod("p")
    cluster.api.put("deviceclasses", dra.device_class())
    async with leading(cluster, extender=True):
        let_kube_scheduler_allocate(cluster)
        refusal = await extending.bound(extender_of(cluster), pods.pod("p"), "n0")
        assert refusal == f"pod default/p: DraAllocated: {REMEDY}"
        assert not cluster.shown("p")["spec"].get("nodeName")


async def test_pod_is_read_where_classes_may_not_be_read(cluster: Cluster) -> None:
    """Nothing is known then, so that each pod may have a device."""
    cluster.api = Without(403)
    cluster.node("n0")
    cluster.pod("p")
    async with leading(cluster, extender=True):
        let_kube_scheduler_allocate(cluster)
        assert "DraAllocated" in await extending.bound(extender_of(cluster), pods.pod("p"), "n0")


@pytest.mark.parametrize("status", [404, 403])
async def test_cluster_without_dra_is_served_as_ever(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """The log says once for each kind that it is not watched; nothing is an error."""
    cluster.api = Without(status)
    cluster.node("n0")
    cluster.pod("p")
    with caplog.at_level(logging.INFO):
        async with leading(cluster):
            await cluster.placed("p")
            assert cluster.term.problem == ""
    lines = [each.getMessage() for each in caplog.records if "resource.k8s.io" in each.getMessage()]
    assert len(lines) == 3
    assert all("are not watched" in line for line in lines)
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


async def test_class_for_our_resource_is_reported(cluster: Cluster) -> None:
    """By an event in the scheduler's namespace, and by a metric until the class loses the resource."""
    async with leading(cluster):
        cluster.api.put("deviceclasses", dra.device_class())
        event = await cluster.event("DraAllocated", REMEDY)
        assert event["metadata"]["namespace"] == event["regarding"]["namespace"] == "tranche-system"
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("DeviceClass", dra.DRIVER)
        assert "counted as free" in event["note"]
        assert len(list(cluster.term.state.device_classes)) == 1
        cluster.api.remove("deviceclasses", dra.DRIVER)
        await cluster.until(lambda: not list(cluster.term.state.device_classes), "end of the class")


async def test_event_of_extender_mode_says_that_pods_are_not_bound(cluster: Cluster) -> None:
    """There the class keeps pods from running."""
    cluster.api.put("deviceclasses", dra.device_class())
    async with leading(cluster, extender=True):
        await cluster.event("DraAllocated", "these pods are not bound")


async def test_pod_that_kube_scheduler_rejects_names_the_class(cluster: Cluster) -> None:
    """By an event, because kube-scheduler does not ask the extender about it."""
    cluster.pod("p")
    cluster.pod("placed", nodeName="n0")
    cluster.api.put("deviceclasses", dra.device_class())
    async with leading(cluster, extender=True):
        event = await cluster.event("DraAllocated", "the pod on no node")
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", "p")
        assert REMEDY in event["note"]


async def test_waiting_pod_names_the_class_and_is_tried_again_without_it(cluster: Cluster) -> None:
    """`/filter` rejects a pod with a device, so that kube-scheduler gives it back, until the class is gone."""
    cluster.pod("p", memory=None)
    cluster.api.put("pods", {**cluster.shown("p"), "status": {"phase": "Pending", **dra.allocated(CLAIM)}})
    cluster.api.put("deviceclasses", dra.device_class())
    async with leading(cluster, extender=True):
        assert extending.reasons(await filtered(cluster, "p")) == {"n0": f"DraAllocated: {REMEDY}"}
        cluster.api.put("deviceclasses", dra.device_class(""))
        await cluster.wrote("PATCH", "/pods/p/status")
        assert extending.reasons(await filtered(cluster, "p")) == {}
        assert await extending.bound(extender_of(cluster), pods.pod("p"), "n0") == ""


async def test_class_that_is_deleted_has_pods_tried_again(cluster: Cluster) -> None:
    """As one that loses the resource."""
    cluster.api.put("deviceclasses", dra.device_class())
    cluster.pod("p", memory=None)
    cluster.api.put("pods", {**cluster.shown("p"), "status": {"phase": "Pending", **dra.allocated(CLAIM)}})
    async with leading(cluster, extender=True):
        assert extending.reasons(await filtered(cluster, "p"))
        cluster.api.remove("deviceclasses", dra.DRIVER)
        await cluster.wrote("PATCH", "/pods/p/status")


async def test_card_of_a_foreign_claim_is_not_given_to_pods(cluster: Cluster) -> None:
    """Until the claim gives it back; then a waiting pod gets it."""
    cluster.node("n0", count=1)
    cluster.api.put("resourceslices", dra.slice_of("n0", "GPU-n0-0"))
    cluster.api.put("resourceclaims", dra.claim("c", "n0", "gpu-0"))
    cluster.pod("p", memory=None)
    async with leading(cluster):
        await cluster.waits("p", "CardTimeSlicingExhausted")
        assert cluster.term.state.foreign_devices.counts() == {"counted": 1}
        cluster.api.put("resourceclaims", dra.claim("c"))
        await cluster.placed("p")


async def test_node_opens_when_its_card_is_known(cluster: Cluster) -> None:
    """A device without a slice closes the node; a slice says that it is a card."""
    cluster.api.put("resourceclaims", dra.claim("c", "n0", "gpu-0"))
    cluster.pod("p", memory=None)
    async with leading(cluster):
        await cluster.waits("p", "ForeignDraDriver")
        cluster.api.put("resourceslices", dra.slice_of("n0", "GPU-n0-0"))
        placed = await cluster.placed("p")
        assert "GPU-n0-1" in placed["metadata"]["annotations"]["gpu.scheduling/allocation"]
        cluster.api.remove("resourceslices", f"n0-{dra.DRIVER}")
        await cluster.until(lambda: "n0" in cluster.term.state.closed_nodes.now(), "closed node")
        cluster.api.remove("resourceclaims", "c", NAMESPACE)
        await cluster.until(lambda: "n0" not in cluster.term.state.closed_nodes.now(), "open node")


async def test_node_whose_cards_change_is_judged_again(cluster: Cluster) -> None:
    """The agent may report a card later than the driver does."""
    cluster.node("n0", count=1)
    cluster.api.put("resourceslices", dra.slice_of("n0", "GPU-n0-0", "GPU-n0-1"))
    cluster.api.put("resourceclaims", dra.claim("c", "n0", "gpu-1"))
    cluster.pod("p", memory=None)
    async with leading(cluster):
        await cluster.waits("p", "ForeignDraDriver")
        cluster.node("n0", count=2)
        await cluster.placed("p")


async def test_card_that_is_allocated_twice_is_reported_at_both(cluster: Cluster) -> None:
    """At the claim and at the pod."""
    cluster.api.put("resourceslices", dra.slice_of("n0", "GPU-n0-0", "GPU-n0-1"))
    cluster.pod("p", gpu=2, memory=None)
    async with leading(cluster):
        await cluster.placed("p")
        await cluster.until(lambda: "uid-p" in cluster.term.state.running, "running pod")
        cluster.api.put("resourceclaims", dra.claim("c", "n0", "gpu-1"))
        await cluster.event("DoubleBooked", "card GPU-n0-1 of node n0 is allocated twice")
        await cluster.until(
            lambda: (
                {each["regarding"]["kind"] for each in cluster.api.all("events") if each["reason"] == "DoubleBooked"}
                == {"Pod", "ResourceClaim"}
            ),
            "both events",
        )


async def test_only_the_configured_drivers_count(cluster: Cluster) -> None:
    """Others have devices that are not cards."""
    cluster.api.put("resourceclaims", dra.claim("c", "n0", "gpu-0"))
    cluster.pod("p")
    async with leading(cluster, dra=DraSettings(foreign_drivers=("other.example.com",))):
        await cluster.placed("p")


async def test_nothing_is_watched_without_foreign_drivers(cluster: Cluster) -> None:
    """The right to read claims is not needed then."""
    async with leading(cluster, dra=DraSettings(foreign_drivers=())):
        assert {"resourceslices", "resourceclaims"}.isdisjoint(each.plural for each in cluster.term._informers)
