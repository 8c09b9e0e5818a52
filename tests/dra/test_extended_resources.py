"""Beside a DRA driver, kube-scheduler 1.37 allocates a device to a pod that requests `nvidia.com/gpu` as well.

The driver is not there: tests write its DeviceClass and its ResourceSlice. Everything else is real.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.dra.conftest import NODE
from tests.system.conftest import pod
from tests.system.support import dra_driver as driver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout
    from tests.system.conftest import Namespace

pytestmark = [pytest.mark.apiserver, pytest.mark.dra]
REMEDY = "DeviceClass gpu.nvidia.com satisfies nvidia.com/gpu, too: remove its extendedResourceName"


def reason(pods: Mapping[str, Any]) -> str:
    """Return why the only pod waits; it has no node."""
    (shown,) = pods.values()
    assert not shown["spec"].get("nodeName"), f"double booked: {shown['status']}"
    conditions = shown["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def test_card_is_never_given_by_dra_and_by_the_extender(dra_cluster: Layout, tenant: Namespace) -> None:
    """While a class satisfies the resource the pod waits and its reason names the class; then it is bound in 10 s."""
    tenant.api.create(driver.device_class(), driver.slice_of(NODE, "GPU-of-another-driver"))
    # Admission adds gpucores to a pod that says nothing of it, which kube-scheduler then places on no node at all.
    tenant.create(pod("p", gpu=1, gpucores=0))
    tenant.until(lambda pods: "extendedResourceClaimStatus" in pods["p"]["status"], what="a device by DRA")
    tenant.until(lambda pods: REMEDY in reason(pods), what="the reason")

    tenant.api.patch("deviceclasses", driver.DRIVER, {"spec": {"extendedResourceName": None}})
    began = time.monotonic()
    (placed,) = tenant.placed(1)
    assert time.monotonic() - began < 10.0
    assert "gpu.scheduling/allocation" in placed["metadata"]["annotations"]
    assert tenant.list("resourceclaims") == []


def test_pod_that_kube_scheduler_places_nowhere_names_the_class(dra_cluster: Layout, tenant: Namespace) -> None:
    """Admission adds gpucores to a pod for a whole card, which no class satisfies; it runs without the class."""
    tenant.api.create(driver.device_class(), driver.slice_of(NODE, "GPU-of-another-driver"))
    tenant.create(pod("p", gpu=1))
    tenant.until(lambda pods: "cannot fit resource" in reason(pods), what="kube-scheduler's reason")

    def noted(events: Mapping[str, Any]) -> bool:
        return any(each.get("reason") == "DraAllocated" and REMEDY in each["note"] for each in events.values())

    tenant.until(noted, "events.events.k8s.io", what="the event")
    tenant.api.patch("deviceclasses", driver.DRIVER, {"spec": {"extendedResourceName": None}})
    tenant.placed(1)
