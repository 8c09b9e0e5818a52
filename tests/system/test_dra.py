"""Beside a DRA driver, in loop mode: what it has allocated is counted.

The driver is not there: tests write its DeviceClass, its ResourceSlices and its claims. Extender mode with a
kube-scheduler that allocates devices itself is in tests/dra.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, USE_UUIDS
from lab import fleet
from tests.system.conftest import Namespace, pod
from tests.system.support import dra_driver as driver
from tests.system.test_gpubindings_cli import gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-1"
CARDS = 8


@pytest.fixture
def offered(tranche: Layout) -> Iterator[Layout]:
    """The lab with the cards of a node offered by the driver, too."""
    driver.remove(tranche)
    cards = (fleet.card(NODE, index) for index in range(CARDS))
    namespace = Namespace(tranche, "default")
    namespace.api.create(driver.slice_of(NODE, *cards))
    yield tranche
    driver.remove(tranche)


def whole_card(name: str, index: int) -> dict[str, Any]:
    """Return a pod for one card of the node."""
    made = pod(name, node=NODE, gpu=1)
    made["metadata"]["annotations"] = {USE_UUIDS: fleet.card(NODE, index)}
    return made


def test_card_that_a_claim_has_is_not_given_to_a_pod(offered: Layout, namespace: Namespace) -> None:
    """Within a second after the claim gave it back, the waiting pod has it."""
    driver.allocate(namespace, "c", NODE, "gpu-0")
    namespace.create(whole_card("p", 0))
    assert "CardTimeSlicingExhausted" in namespace.unplaced("p")
    namespace.create(whole_card("q", 1))
    namespace.placed(1)
    driver.release(namespace, "c")
    began = time.monotonic()
    placed = {each["metadata"]["name"]: each for each in namespace.placed(2)}
    assert time.monotonic() - began < 1.0
    assert fleet.card(NODE, 0) in placed["p"]["metadata"]["annotations"][ALLOCATION]


def test_node_with_an_unknown_device_takes_no_pod(offered: Layout, namespace: Namespace) -> None:
    """Until the claim is gone."""
    driver.allocate(namespace, "c", NODE, "mig-of-gpu-3")
    namespace.create(whole_card("p", 0))
    assert "ForeignDraDriver" in namespace.unplaced("p")
    driver.release(namespace, "c")
    namespace.placed(1)


def test_card_that_a_pod_has_and_a_claim_gets_is_reported(offered: Layout, namespace: Namespace) -> None:
    """By events on both; the pod stays."""
    namespace.create(whole_card("p", 0))
    namespace.placed(1)
    driver.allocate(namespace, "c", NODE, "gpu-0")

    def reported(events: Mapping[str, Any]) -> bool:
        found = [each for each in events.values() if each.get("reason") == "DoubleBooked"]
        return {each["regarding"]["kind"] for each in found} == {"Pod", "ResourceClaim"}

    namespace.until(reported, "events.events.k8s.io", what="events about both")
    assert namespace.pod("p")["spec"]["nodeName"] == NODE
    driver.release(namespace, "c")


def test_preflight_shows_what_the_driver_offers_and_has(offered: Layout, namespace: Namespace) -> None:
    """Its slices on the node, and its claims; without the objects nothing is found."""
    driver.allocate(namespace, "c", NODE, "gpu-0")
    report = gpu(offered.kubeconfig, "preflight").stdout
    assert f"node {NODE}" in report
    assert f"DRA driver {driver.DRIVER} offers devices of the node" in report
    assert f"ResourceClaim {namespace.name}/c" in report
    driver.release(namespace, "c")
    driver.remove(offered)
    assert "DRA driver" not in gpu(offered.kubeconfig, "preflight").stdout
