"""Which queue a pod belongs to on a real API server: labels decide until it has a node, then `charged-to` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allocation.names import QUEUE
from lab import wait
from lab.client import client
from lab.connection import RefusedError
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpuqueues
from tests.system.support.gpubindings import placed
from tests.system.support.gpuqueues import labels, payer, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


@pytest.fixture
def queues(tranche: Layout, namespace: Namespace) -> Iterator[None]:
    """Queues `ours` and `theirs`."""
    set_queue(tranche, "ours")
    set_queue(tranche, "theirs")
    with gpuqueues.deleted(tranche, namespace):
        yield


def running(layout: Layout, name: str, count: int) -> None:
    """Wait until the status of a queue has this number of pods with a node."""
    wait.until(
        lambda: gpuqueues.status(layout, name).get("running", 0) == count,
        what=f"{count} pods of {name}",
        timeout_s=PATIENCE_S,
    )


@pytest.mark.usefixtures("queues")
def test_label_of_the_namespace_is_the_default(namespace: Namespace) -> None:
    """A pod's own label counts more; a later label of the namespace moves no pod that has a node."""
    namespace.create(pod("before", gpu=1, gpumem=100))
    placed(namespace, "before")
    client(namespace.layout).patch("namespace", namespace.name, {"metadata": {"labels": {QUEUE: "ours"}}})
    own = f"namespace/{namespace.name}"

    def charged() -> str | None:
        namespace.create(pod("probe", gpu=1, gpumem=100))
        found = payer(placed(namespace, "probe"))
        namespace.delete("pod", "probe")
        assert found in (own, "ours")
        return found if found == "ours" else None

    wait.until(charged, what="the label to count", timeout_s=PATIENCE_S)
    namespace.create(pod("default", gpu=1, gpumem=100), pod("explicit", labels=labels("theirs"), gpu=1, gpumem=100))
    names = ("before", "default", "explicit")
    assert [payer(placed(namespace, name)) for name in names] == [own, "ours", "theirs"]
    running(namespace.layout, "ours", 1)


@pytest.mark.usefixtures("queues")
def test_pods_of_a_deleted_queue_stay_and_are_charged_to_it_when_it_is_back(namespace: Namespace) -> None:
    """New ones wait meanwhile."""
    namespace.create(pod("runs", labels=labels("ours"), gpu=1, gpumem=100))
    placed(namespace, "runs")
    running(namespace.layout, "ours", 1)
    with pytest.raises(RefusedError, match=r"GpuQueue ours is in use .* its pods with cards: 1,"):
        client(namespace.layout).delete("gpuqueue", "ours")
    gpuqueues.delete_queue(namespace.layout, "ours")
    namespace.create(pod("waits", labels=labels("ours"), gpu=1, gpumem=100))
    assert "GpuQueue ours does not exist" in namespace.unplaced("waits")
    assert payer(placed(namespace, "runs")) == "ours"
    set_queue(namespace.layout, "ours")
    placed(namespace, "waits")
    running(namespace.layout, "ours", 2)


@pytest.mark.usefixtures("queues")
def test_waiting_pod_changes_its_queue_with_its_label(namespace: Namespace) -> None:
    """From a queue that takes no pods to one that does; that one pays."""
    set_queue(namespace.layout, "ours", maxInstances=0)
    wait.until(
        lambda: gpuqueues.status(namespace.layout, "ours").get("observedGeneration") == 2,
        what="the scheduler to know the queue",
        timeout_s=PATIENCE_S,
    )
    namespace.create(pod("moves", labels=labels("ours"), gpu=1, gpumem=100))
    assert "spec.maxInstances" in namespace.unplaced("moves")
    namespace.patch("pod", "moves", {"metadata": {"labels": {QUEUE: "theirs"}}})
    assert payer(placed(namespace, "moves")) == "theirs"
