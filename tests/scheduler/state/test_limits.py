"""A changed limit has pods scheduled again, and results that were computed before it do not hold any more."""

from collections.abc import Callable

import msgspec
import pytest

from allocation.names import QUEUE
from cluster.resource_quota import ResourceQuota
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState
from scheduler.state.limits import Limits
from tests.scheduler.support.builders import allocated, namespace, pod, state
from tests.scheduler.support.driving import Driver, gpu_queue
from tests.scheduler.support.quotas import gpu_quota

QUOTA = msgspec.convert({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {}}}, ResourceQuota)
CHANGES: dict[str, tuple[Callable[[Limits], None], ClusterEvent]] = {
    "a new queue": (lambda to: to.set_queue(gpu_queue("b")), ClusterEvent.GPU_QUEUE_CHANGED),
    "an end of a queue": (lambda to: to.drop_queue(gpu_queue("a")), ClusterEvent.GPU_QUEUE_CHANGED),
    "a quota": (lambda to: to.set_quota(QUOTA), ClusterEvent.QUOTA_CHANGED),
    "an end of a quota": (lambda to: to.drop_quota(QUOTA), ClusterEvent.QUOTA_CHANGED),
    "a GpuQuota": (lambda to: to.set_gpu_quota(gpu_quota("b")), ClusterEvent.QUOTA_CHANGED),
    "an end of a GpuQuota": (lambda to: to.drop_gpu_quota(gpu_quota("a")), ClusterEvent.QUOTA_CHANGED),
}


def limited(monkeypatch: pytest.MonkeyPatch) -> tuple[ClusterState, list[ClusterEvent]]:
    """Return a state with a GpuQueue and a GpuQuota, and the events of which its queue is notified from now on."""
    made, events = state("n1"), list[ClusterEvent]()
    made.limits.set_queue(gpu_queue("a"))
    made.limits.set_gpu_quota(gpu_quota("a"))
    monkeypatch.setattr(made.queue, "notify", events.append)
    return made, events


@pytest.mark.parametrize(("change", "event"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_noted_and_passed_on(
    change: Callable[[Limits], None], event: ClusterEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision that was interrupted evaluates its node again, and the queue tries pods which the event may help."""
    made, events = limited(monkeypatch)
    before = made.ledger.changes.state
    change(made.limits)
    assert made.ledger.changes.state != before
    assert events == [event]


def test_the_same_spec_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each status of a queue or a GpuQuota comes back as an update."""
    made, events = limited(monkeypatch)
    before = made.ledger.changes.state
    made.limits.set_queue(gpu_queue("a"))
    made.limits.set_gpu_quota(gpu_quota("a"))
    assert (made.ledger.changes.state, events) == (before, [])


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_queue_that_loses_the_pods_of_a_namespace_takes_others(*, is_deleted: bool) -> None:
    """Pods that were bound before there was any queue are charged as the labels of their namespaces say."""
    driver, labelled = Driver(state("n1")), namespace("default", **{QUEUE: "a"})
    limits = driver.state.limits
    limits.set_namespace(labelled)
    driver.state.set_pod(allocated("runs", node="n1", memory=1000))
    limits.set_queue(gpu_queue("a", limits={"nvidia.com/gpumem": 1000}))
    driver.add(pod("waits", memory=500, namespace="team", labels={QUEUE: "a"}))
    assert await driver.settle() == []
    if is_deleted:
        limits.drop_namespace(labelled)
    else:
        limits.set_namespace(namespace("default"), labelled)
    assert await driver.settle() == ["waits"]
