"""GpuQueues behind a stock kube-scheduler: it decides the order, the extender what queues allow and who pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM
from cluster.resource import GPU_CLAIMS
from lab import wait
from tests.support import namespaces
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpuqueues, gpuquotas, pairs
from tests.system.support.gpubindings import placed
from tests.system.support.gpuqueues import labels, payer, set_queue
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE, TEAM = "node-a", "team"


@pytest.fixture(scope="module")
def extended(uts_support: None, empty_cluster: Layout) -> Layout:
    """A node of eight cards, one pair, and a namespace."""
    pairs.up(empty_cluster, [NODE])
    Pair(empty_cluster, 0).start()
    namespaces.create(empty_cluster, TEAM, {"gpu.scheduling/injection": "enabled"})
    return empty_cluster


@pytest.fixture
def namespace(extended: Layout) -> Iterator[Namespace]:
    """The namespace; its pods and all queues are deleted after the test."""
    made = Namespace(extended, TEAM)
    with gpuqueues.deleted(extended, made):
        yield made


def of_queue(name: str, queue: str) -> dict[str, Any]:
    """Return a pod of a queue with a whole card."""
    return pod(name, labels=labels(queue), gpu=1)


def test_binding_says_who_pays(namespace: Namespace) -> None:
    """A queue, or the namespace; none as long as no queue exists, nor for pods of that time."""
    namespace.create(pod("before", gpu=1, gpumem=100))
    placed(namespace, "before")
    set_queue(namespace.layout, "payer")
    namespace.create(of_queue("one", "payer"), pod("own", gpu=1, gpumem=100))
    found = {name: payer(placed(namespace, name)) for name in ("before", "one", "own")}
    assert found == {"before": None, "one": "payer", "own": f"namespace/{TEAM}"}


def test_limit_holds_and_a_pod_that_ends_makes_room(namespace: Namespace) -> None:
    """Seven cards are free all the time; neither the extender nor the Binding grants a second one to the queue."""
    set_queue(namespace.layout, "limited", limits={"nvidia.com/gpu": 1})
    namespace.create(of_queue("one", "limited"))
    placed(namespace, "one")
    namespace.create(of_queue("two", "limited"))
    assert "GpuQueue limited limits nvidia.com/gpu to 1: 1 used, 1 requested" in namespace.unplaced("two")
    namespace.create(pod("witness", gpu=4))
    placed(namespace, "witness")
    namespace.delete("pod", "one")
    placed(namespace, "two")


def test_most_instances_hold_when_all_pods_come_at_once(namespace: Namespace) -> None:
    """Of six pods for eight cards, two are placed; when the queue allows one more, a third."""
    set_queue(namespace.layout, "few", maxInstances=2)
    names = [f"pod-{number}" for number in range(6)]
    namespace.create(*(of_queue(name, "few") for name in names))
    waiting = sorted({*names} - {each["metadata"]["name"] for each in namespace.placed(2)})
    for name in waiting:
        assert "as many as its spec.maxInstances allows" in namespace.unplaced(name)
    namespace.placed(2)
    set_queue(namespace.layout, "few", maxInstances=6)
    for name in waiting:
        assert payer(placed(namespace, name)) == "few"


def test_new_pods_of_a_suspended_queue_wait(namespace: Namespace) -> None:
    """Those that run stay; the others go when the queue is not suspended any more."""
    set_queue(namespace.layout, "paused")
    namespace.create(of_queue("runs", "paused"))
    placed(namespace, "runs")
    set_queue(namespace.layout, "paused", suspended=True)
    wait.until(
        lambda: gpuqueues.status(namespace.layout, "paused").get("observedGeneration") == 2,
        what="the leader to hear of it",
        timeout_s=PATIENCE_S,
    )
    namespace.create(of_queue("waits", "paused"))
    assert "GpuQueue paused is suspended" in namespace.unplaced("waits")
    assert namespace.pod("runs")["spec"]["nodeName"] == NODE
    set_queue(namespace.layout, "paused", suspended=False)
    placed(namespace, "waits")


def test_pod_waits_for_its_queue(namespace: Namespace) -> None:
    """It can be created before the queue, and gets its node soon after it."""
    namespace.create(of_queue("early", "later"))
    assert "GpuQueue later does not exist" in namespace.unplaced("early")
    set_queue(namespace.layout, "later")
    assert payer(placed(namespace, "early", timeout_s=pairs.SOON_S)) == "later"


def test_pod_waits_for_its_claim(namespace: Namespace) -> None:
    """kube-scheduler watches no claims, and tries the pod as soon as its claim exists again."""
    claim = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind, "metadata": {"name": "mine"}}
    claim |= {"spec": {"devices": {"count": 2}}}
    namespace.api.apply(claim, namespace=namespace.name)
    waits = pod("waits")
    waits["metadata"]["annotations"] = {CLAIM: "mine"}
    waits["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    namespace.create(waits)
    namespace.delete(GPU_CLAIMS.plural, "mine")
    namespace.api.patch("pods", "waits", {"spec": {"schedulingGates": None}}, namespace=namespace.name)
    assert "GpuClaim mine" in namespace.unplaced("waits")
    namespace.api.apply(claim, namespace=namespace.name)
    placed(namespace, "waits", timeout_s=pairs.SOON_S)
    namespace.delete(GPU_CLAIMS.plural, "mine")


def test_pod_waits_for_its_quota(namespace: Namespace) -> None:
    """kube-scheduler watches no quotas, and tries the pod as soon as the quota allows it."""
    gpuquotas.set_quota(namespace, "few", total={"maxPods": 1})
    namespace.create(pod("first", gpu=1, gpumem=100))
    placed(namespace, "first")
    namespace.create(pod("waits", gpu=1, gpumem=100))
    assert "GpuQuota few" in namespace.unplaced("waits")
    gpuquotas.set_quota(namespace, "few", total={"maxPods": 2})
    placed(namespace, "waits", timeout_s=pairs.SOON_S)
    gpuquotas.delete_quota(namespace, "few")
