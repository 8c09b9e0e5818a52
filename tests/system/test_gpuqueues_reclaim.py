"""Reclaim on a real API server: a queue gets what it is owed from one whose pods never end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import QUEUE
from lab import fleet, kubectl, wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpuqueues
from tests.system.support.gpuqueues import labels, set_queue
from tests.system.support.scheduler_api import query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

CARDS = fleet.CARDS_PER_NODE * len(fleet.SIMULATED_NODES)
"""Of all usable nodes, of which they are shares."""
OWED, BRIEF, ENDLESS = "owed", "brief", "endless"
EVENTS = "events.events.k8s.io"


@pytest.fixture
def _simulated_nodes_only(tranche: Layout) -> Iterator[None]:
    """Cordon the lab's real node, if there is one."""
    cordoned = [each for each in fleet.nodes(tranche) if each not in fleet.SIMULATED_NODES]
    for name in cordoned:
        client(tranche).patch("node", name, {"spec": {"unschedulable": True}})
    yield
    for name in cordoned:
        client(tranche).patch("node", name, {"spec": {"unschedulable": False}})


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of the queue whose pods never end."""
    made = make_namespace()
    yield made
    made.empty()


@pytest.fixture
def queues(_simulated_nodes_only: None, tranche: Layout, namespace: Namespace, others: Namespace) -> Iterator[None]:
    """Two queues of weights 3 and 1, which both reclaim from the other one."""
    set_queue(tranche, OWED, weight=3, reclaim="WithinTier", reclaimAfterSeconds=1)
    set_queue(tranche, ENDLESS, weight=1, reclaim="WithinTier", reclaimAfterSeconds=1)
    with gpuqueues.deleted(tranche, namespace, others):
        yield


@pytest.fixture
def full(tranche: Layout, _simulated_nodes_only: None, others: Namespace) -> Iterator[None]:
    """A queue that reclaims, and is entitled to two cards, and one whose pods have all of them."""
    set_queue(tranche, BRIEF, reclaim="WithinTier", reclaimAfterSeconds=1)
    set_queue(tranche, ENDLESS, weight=CARDS // 2 - 1)
    others.create(deployment(ENDLESS))
    others.placed(CARDS)
    with gpuqueues.deleted(tranche, others):
        yield


def deployment(queue: str) -> dict[str, Any]:
    """Return a Deployment whose pods would take all cards."""
    template = pod("unused", labels={**labels(queue), "app": queue}, gpu=1)
    spec = {
        "replicas": CARDS,
        "selector": {"matchLabels": {"app": queue}},
        "template": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": queue}, "spec": spec}


def held(*namespaces: Namespace) -> Counter[str]:
    """Return how many cards each queue has."""
    placed = [each for made in namespaces for each in made.pods(QUEUE) if each["spec"].get("nodeName")]
    return Counter(each["metadata"]["labels"][QUEUE] for each in placed if "deletionTimestamp" not in each["metadata"])


def reclaimed(namespace: Namespace, taker: str) -> list[str]:
    """Return the UIDs of the pods that were evicted because of reclaim, and check what their events say."""
    events = client(namespace.layout).list(EVENTS, namespace=namespace.name)
    found = [each for each in events if each["reason"] == "Reclaimed"]
    words = f"GpuQueue {ENDLESS} has more than its entitlement, and GpuQueue {taker} less"
    assert all(words in each["note"] for each in found), found
    return [each["regarding"]["uid"] for each in found]


@pytest.mark.usefixtures("queues")
def test_two_queues_end_at_their_weights_without_a_pod_evicted_twice(
    tranche: Layout, namespace: Namespace, others: Namespace
) -> None:
    """From 0:24 cards at weights 3:1 to 18:6, by 18 evictions; their controllers create all pods again at once."""
    others.create(deployment(ENDLESS))
    others.placed(CARDS)
    namespace.create(deployment(OWED))
    due = CARDS * 3 // 4
    wait.until(lambda: len(reclaimed(others, OWED)) >= due, what="evictions", timeout_s=2 * PATIENCE_S)
    wait.until(lambda: held(namespace, others)[OWED] == due, what="the cards of the queue", timeout_s=PATIENCE_S)

    def in_status(queue: str, running: int) -> bool:
        return gpuqueues.status(tranche, queue).get("running") == running

    for queue, running in ((OWED, due), (ENDLESS, CARDS - due)):
        wait.until(lambda q=queue, r=running: in_status(q, r), what=f"the status of {queue}", timeout_s=PATIENCE_S)
    # A pod that is created now is decided after all that the last evictions made due.
    namespace.create(pod("late", labels=labels(OWED), gpu=1))
    namespace.unplaced("late")
    assert held(namespace, others) == {OWED: due, ENDLESS: CARDS - due}
    uids = reclaimed(others, OWED)
    assert len(uids) == len(set(uids)) == due
    assert reclaimed(namespace, ENDLESS) == []
    shown = kubectl.run(tranche, "-n", namespace.name, "get", "gpuqueue", OWED, "-o", "jsonpath={.status.share}")
    assert shown == "0.7500"


@pytest.mark.usefixtures("full")
def test_what_a_queue_reclaims_in_an_hour_is_bounded(tranche: Layout, namespace: Namespace, others: Namespace) -> None:
    """Pods that reclaim a card and end at once do so twice, for two cards, and then wait."""
    for number in range(2):
        namespace.create(pod(f"brief-{number}", labels=labels(BRIEF), gpu=1))
        namespace.placed(1)
        namespace.delete("pod", f"brief-{number}")
        others.placed(CARDS)
    namespace.create(pod("third", labels=labels(BRIEF), gpu=1))
    namespace.unplaced("third")
    words = f"GpuQueue {BRIEF} has reclaimed as much as it is entitled to within the last hour"
    path = f"/api/explain/{namespace.name}/third"
    wait.until(
        lambda: (query(tranche, path)["preemption"] or {}).get("reclaim") == words,
        what="the reason why no more is reclaimed",
        timeout_s=PATIENCE_S,
    )
    assert len(reclaimed(others, BRIEF)) == 2
