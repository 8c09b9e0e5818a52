"""Requirements in one line, from the annotation to the bill, on a real API server with the real webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation import names
from allocation.wire import record
from lab import wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, gpuqueues
from tests.system.support.gpubindings import placed
from tests.system.support.gpuqueues import labels, set_queue
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE, CARDS = gpubindings.NODE_A, 8
GIB = 1024**3


@pytest.fixture(scope="module")
def node(tranche: Layout) -> Iterator[str]:
    """A node of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield NODE


@pytest.fixture
def queue(tranche: Layout, namespace: Namespace) -> Iterator[str]:
    """A queue whose pods require two GPUs unless they say otherwise."""
    set_queue(tranche, "lined", resreq="cpu=1,mem=1g,gpu=2")
    with gpuqueues.deleted(tranche, namespace):
        yield "lined"


def requiring(name: str, text: str = "", *, queue: str) -> dict[str, Any]:
    """Return a pod without resources that requires `text`, or what its queue says."""
    made = pod(name, node=NODE, labels=labels(queue))
    del made["spec"]["containers"][0]["resources"]
    if text:
        made["metadata"]["annotations"] = {names.RESREQ: text}
    return made


def allocated(layout: Layout, queue: str, running: int) -> dict[str, int]:
    """Wait until the status of a queue has this number of pods, and return what they hold."""

    def found() -> dict[str, int] | None:
        shown = gpuqueues.status(layout, queue)
        return dict(shown["allocated"]) if shown.get("running") == running else None

    return wait.until(found, what=f"{running} pods of {queue}", timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("node")
def test_a_requirement_is_what_is_placed_and_charged_also_after_a_restart(namespace: Namespace, queue: str) -> None:
    """GPUs, CPU and memory: in the spec, in the allocation, in the queue's status, and in that of the next leader."""
    namespace.create(requiring("explicit", "cpu=2, mem=1.5g, gpu=3", queue=queue), requiring("default", queue=queue))
    for name, cards in (("explicit", 3), ("default", 2)):
        found = placed(namespace, name)
        assert found["metadata"]["labels"][names.QUEUE] == queue
        assert len(record.decode(found["metadata"]["annotations"][names.ALLOCATION]).containers["main"]) == cards
    resources = namespace.pod("explicit")["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {
        "cpu": "2",
        "memory": str(3 * GIB // 2),
        "nvidia.com/gpu": "3",
        "nvidia.com/gpucores": "100",
    }
    assert namespace.pod("explicit")["metadata"]["annotations"][names.RESREQ] == "cpu=2, mem=1.5g, gpu=3"
    before = allocated(namespace.layout, queue, 2)
    assert (before["nvidia.com/gpu"], before["cpu"], before["memory"]) == (5, 3000, 5 * GIB // 2)
    restart(namespace.layout, "scheduler")
    namespace.create(requiring("later", "gpu=1", queue=queue))
    placed(namespace, "later")
    after = allocated(namespace.layout, queue, 3)
    assert after["nvidia.com/gpu"] == 6
    assert (after["cpu"], after["memory"]) == (before["cpu"], before["memory"])


@pytest.mark.usefixtures("node")
def test_a_requirement_of_two_gpus_does_not_fit_on_one(namespace: Namespace, queue: str) -> None:
    """It waits, and is placed as soon as a second card is free."""
    namespace.create(requiring("most", f"gpu={CARDS - 1}", queue=queue))
    placed(namespace, "most")
    namespace.create(requiring("two", "gpu=2", queue=queue))
    namespace.unplaced("two")
    assert not namespace.pod("two")["spec"].get("nodeName")
    namespace.delete("pod", "most")
    annotations = placed(namespace, "two")["metadata"]["annotations"]
    assert len(record.decode(annotations[names.ALLOCATION]).containers["main"]) == 2


def test_a_pod_of_the_queue_without_gpus_is_ordered_by_it(namespace: Namespace, queue: str) -> None:
    """Its CPU and memory are requests, and it is scheduled and charged like the others."""
    made = requiring("plain", "cpu=1,mem=64m", queue=queue)
    made["spec"]["nodeSelector"] = {}
    namespace.create(made)
    found = placed(namespace, "plain")
    assert found["spec"]["schedulerName"] == names.SCHEDULER_NAME
    assert found["metadata"]["annotations"][names.CHARGED_TO] == queue
    assert names.ALLOCATION not in found["metadata"]["annotations"]
