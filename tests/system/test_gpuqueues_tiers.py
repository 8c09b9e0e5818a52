"""Tiers on a real API server: what becomes free is for the higher tier as long as pods of it wait for cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, gpuqueues
from tests.system.support.gpubindings import placed
from tests.system.support.gpuqueues import labels, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = gpubindings.NODE_A
CARDS = 8
HIGH, LOW = "high", "low"
HIGH_PRIORITY = 10


@pytest.fixture(scope="module")
def node(tranche: Layout) -> Iterator[str]:
    """A node of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield NODE


@pytest.fixture
def tiers(node: str, tranche: Layout, namespace: Namespace) -> Iterator[None]:
    """A queue in a higher tier and one in the lowest."""
    set_queue(tranche, HIGH, priority=HIGH_PRIORITY)
    set_queue(tranche, LOW)
    with gpuqueues.deleted(tranche, namespace):
        yield


def slice_(name: str) -> dict[str, Any]:
    """Return a pod of the lower tier with half a card."""
    return pod(name, node=NODE, labels=labels(LOW), gpu=1, gpumem=40_000)


def running(namespace: Namespace, queue: str) -> set[str]:
    """Return the names of the pods of a queue that have a node."""
    found = namespace.pods(",".join(f"{key}={value}" for key, value in labels(queue).items()))
    return {each["metadata"]["name"] for each in found if each["spec"].get("nodeName")}


@pytest.mark.usefixtures("tiers")
def test_slices_of_a_lower_tier_take_nothing_of_what_becomes_free(namespace: Namespace) -> None:
    """Each end is an event after which the pod of the higher tier is tried again, and fits once a card is whole."""
    namespace.create(*(slice_(f"first-{number:02}") for number in range(2 * CARDS)))
    namespace.placed(2 * CARDS)
    namespace.create(pod("large", node=NODE, labels=labels(HIGH), gpu=1))
    namespace.unplaced("large")
    late = {f"late-{number}" for number in range(4)}
    namespace.create(*(slice_(name) for name in late))
    ends = 0
    for name in sorted(running(namespace, LOW)):
        if "large" in running(namespace, HIGH):
            break
        namespace.delete("pod", name)
        ends += 1
        # A pod of the higher tier for another node: it is decided after those that the end of the slice made due.
        witness = f"witness-{ends}"
        namespace.create(pod(witness, node=gpubindings.NODE_B, labels=labels(HIGH), gpu=1, gpumem=100))
        placed(namespace, witness)
        assert "large" in running(namespace, HIGH) or not late & running(namespace, LOW)
    assert 2 <= ends <= CARDS + 1, "as soon as both slices of a card have ended"
    # The higher tier has all that it waited for, so the others take what is left.
    left = min(ends - 2, len(late))
    wait.until(lambda: len(late & running(namespace, LOW)) == left, what=f"{left} late slices", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("spec", [{"suspended": True}, {"limits": {"nvidia.com/gpu": 0}}, {"maxInstances": 0}])
@pytest.mark.usefixtures("tiers")
def test_pod_that_waits_for_its_own_queue_keeps_no_tier_waiting(namespace: Namespace, spec: dict[str, Any]) -> None:
    """Cards that become free do not help it."""
    namespace.create(*(pod(f"filler-{number}", node=NODE, labels=labels(LOW), gpu=1) for number in range(CARDS)))
    namespace.placed(CARDS)
    set_queue(namespace.layout, HIGH, priority=HIGH_PRIORITY, **spec)
    wait.until(
        lambda: gpuqueues.status(namespace.layout, HIGH).get("observedGeneration") == 2,
        what="the scheduler to know the queue",
        timeout_s=PATIENCE_S,
    )
    namespace.create(pod("large", node=NODE, labels=labels(HIGH), gpu=1))
    assert f"GpuQueue {HIGH}" in namespace.unplaced("large")
    namespace.create(slice_("modest"))
    namespace.delete("pod", "filler-0")
    placed(namespace, "modest")
    assert not running(namespace, HIGH)
