"""GpuQueues decide who pays for a pod's cards: no team charges another one, or moves usage away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, CHARGED_TO, QUEUE
from lab import wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod
from tests.system.support.gpuqueues import delete_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
TEAM, OTHERS = "forgery-a", "forgery-b"


def queue(name: str, *namespaces: str) -> dict[str, Any]:
    """Return a GpuQueue for the pods of some namespaces."""
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    spec = {"namespaceSelector": {"matchExpressions": [names]}}
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQueue", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def team(tranche: Layout, namespace: Namespace) -> Iterator[Namespace]:
    """A namespace whose pods may name queue TEAM; queue OTHERS is for other namespaces."""
    client(tranche).apply(queue(TEAM, namespace.name), queue(OTHERS, "elsewhere"))
    yield namespace
    for name in (TEAM, OTHERS):
        delete_queue(tranche, name)


def charged(namespace: Namespace, name: str) -> str:
    """Return who pays for a placed pod."""
    account: str = namespace.pod(name)["metadata"]["annotations"][CHARGED_TO]
    return account


def running(layout: Layout, name: str) -> int:
    """Return how many pods a queue pays for, as its status says."""
    return int(client(layout).get("gpuqueue", name).get("status", {}).get("running", 0))


def test_usage_is_not_moved_away_by_a_label(tranche: Layout, team: Namespace) -> None:
    """The label of a pod that has cards can be changed, but the queue that was charged still pays."""
    client(tranche).apply(queue(OTHERS, team.name))
    team.create(pod("first", labels={QUEUE: TEAM}, node="gpu-sim-0", gpu=1, gpumem=100))
    team.placed(1)
    team.patch("pod", "first", {"metadata": {"labels": {QUEUE: str(OTHERS)}}})
    team.create(pod("second", labels={QUEUE: OTHERS}, node="gpu-sim-0", gpu=1, gpumem=100))
    team.placed(2)
    wait.until(
        lambda: (running(tranche, TEAM), running(tranche, OTHERS)) == (1, 1),
        what="one pod in the status of each queue, which are written one after the other",
        timeout_s=PATIENCE_S,
    )
    assert charged(team, "first") == TEAM


def test_pod_of_another_namespace_charges_no_queue(team: Namespace, request: pytest.FixtureRequest) -> None:
    """The webhook refuses a queue that is not for the namespace; without the webhook the pod waits."""
    sent = pod("guest", gpu=1, gpumem=100)
    (prepared,) = team.api.create(sent, namespace=team.name, dry_run=True)
    sent["metadata"]["labels"] = {QUEUE: OTHERS}
    assert f"GpuQueue {OTHERS}, whose spec.namespaceSelector does not match" in refusal(lambda: team.create(sent))
    request.getfixturevalue("dead_webhook")
    team.create({**sent, "spec": prepared["spec"]})
    assert f"GpuQueue {OTHERS} is not for namespace {team.name}" in team.unplaced("guest")
    assert ALLOCATION not in team.pod("guest")["metadata"].get("annotations", {})
