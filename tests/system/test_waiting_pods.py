"""Pending pods that are deleted, alone or with their namespace, or whose labels change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubectl, wait
from lab.client import client
from lab.processes import Daemon
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import scheduler_api
from tests.system.test_recovery import settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-1"
CARDS = 8
PODS = 30


def pending(layout: Layout) -> int:
    """Return the number of pods in the scheduler's queue, in any state."""
    samples = scheduler_api.metrics(scheduler_api.url(layout))["tranche_scheduler_pods"]
    assert samples
    return sum(int(sample.value) for sample in samples)


def until_pending(layout: Layout, count: int) -> None:
    """Wait until the queue holds that many pods."""
    wait.until(lambda: pending(layout) == count, what=f"{count} pods in the queue", timeout_s=PATIENCE_S)


def whole_cards(count: int) -> list[dict[str, Any]]:
    """Return manifests of pods that request a whole card each, on a node with eight."""
    return [pod(f"p{number:02}", node=NODE, gpu=1) for number in range(count)]


def test_deleted_namespace_leaves_nothing_behind(
    tranche: Layout, make_namespace: Callable[..., Namespace], namespace: Namespace
) -> None:
    """Its pods leave the queue and the ledger, pending and running ones, and get no further event."""
    before = pending(tranche)
    doomed = make_namespace()
    doomed.create(*whole_cards(PODS))
    doomed.placed(CARDS)
    until_pending(tranche, before + PODS - CARDS)
    log = Daemon(tranche, "scheduler").log
    kubectl.run(tranche, "delete", "namespace", doomed.name, KUBECTL_PATIENCE)
    until_pending(tranche, before)
    settled(tranche)

    size = log.stat().st_size
    namespace.create(*whole_cards(CARDS))
    namespace.placed(CARDS)
    with log.open("rb") as lines:
        lines.seek(size)
        assert doomed.name.encode() + b"/" not in lines.read()


def test_pending_pods_stay_in_the_queue_when_labels_change(tranche: Layout, namespace: Namespace) -> None:
    """Admission at creation decides: a later label change does not remove a pod from the queue."""
    before = pending(tranche)
    namespace.create(*whole_cards(CARDS + 3))
    bound = {each["metadata"]["name"] for each in namespace.placed(CARDS)}
    waiting = sorted({each["metadata"]["name"] for each in namespace.pods()} - bound)
    client(tranche).patch("namespace", namespace.name, {"metadata": {"labels": {"gpu.scheduling/injection": None}}})
    namespace.patch("pod", waiting[0], {"metadata": {"labels": {"gpu.scheduling/injection": "disabled"}}})
    namespace.patch("pod", waiting[1], {"metadata": {"labels": {"hami.io/webhook": "ignore"}}})
    until_pending(tranche, before + 3)
    namespace.kubectl("delete", "pod", *sorted(bound)[:3])
    placed = namespace.placed(CARDS)
    assert set(waiting) <= {each["metadata"]["name"] for each in placed}
    assert all("gpu.scheduling/allocation" in each["metadata"]["annotations"] for each in placed)
    until_pending(tranche, before)
    settled(tranche)


def test_deleted_pending_pods_leave_the_queue(tranche: Layout, namespace: Namespace) -> None:
    """This holds for one, a forced and a collective deletion, and for a pod that a finalizer keeps in the API."""
    before = pending(tranche)
    kept = pod("kept", node="nowhere", gpu=1)
    kept["metadata"]["finalizers"] = ["example.com/kept"]
    namespace.create(kept, *(pod(f"p{number}", node="nowhere", gpu=1) for number in range(PODS)))
    until_pending(tranche, before + PODS + 1)
    namespace.delete("pod", "p0")
    namespace.delete("pod", "p1", grace_s=0)
    until_pending(tranche, before + PODS - 1)
    namespace.api.delete_all("pods", namespace=namespace.name, wait=False)
    until_pending(tranche, before)
    namespace.kubectl("patch", "pod", "kept", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
