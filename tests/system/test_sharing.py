"""Sharing of cards: exactly as many pods are placed as fit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from allocation.names import ALLOCATION, CARD_POLICY
from allocation.wire import record
from lab import wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-2"


def test_twelve_pods_share_eight_cards(tranche: Layout, namespace: Namespace) -> None:
    """12 pods of 3000 MiB on a node with 8 cards use all of them if they ask for that; by default they fill cards."""
    pods = [pod(f"p{index}", node=NODE, gpu=1, gpumem=3000) for index in range(12)]
    namespace.create(*pods)
    assert len(_cards(namespace)) == 2
    namespace.delete("pod", *(each["metadata"]["name"] for each in pods))
    for each in pods:
        each["metadata"]["annotations"] = {CARD_POLICY: "spread"}
    namespace.create(*pods)
    assert len(_cards(namespace)) == 8


def _cards(namespace: Namespace) -> set[str]:
    """Return the cards of twelve pods."""
    return {
        share.uuid
        for each in namespace.placed(12)
        for share in record.decode(each["metadata"]["annotations"][ALLOCATION]).containers["main"]
    }


def test_seventeenth_pod_follows_within_a_second_of_a_deletion(tranche: Layout, namespace: Namespace) -> None:
    """17 pods of 30000 MiB on 8 cards: 16 are bound, and the last one waits until one of them is deleted."""
    namespace.create(*(pod(f"p{index:02}", node=NODE, gpu=1, gpumem=30000) for index in range(17)))
    placed = {each["metadata"]["name"] for each in namespace.placed(16)}
    (waiting,) = {each["metadata"]["name"] for each in namespace.pods()} - placed
    assert "8/8 CardInsufficientMemory" in namespace.unplaced(waiting)
    assert namespace.pod(waiting)["status"]["phase"] == "Pending"
    assert ALLOCATION not in namespace.pod(waiting)["metadata"].get("annotations", {})
    namespace.delete("pod", min(placed))
    follower = wait.until(
        lambda: audit.last(tranche, namespace=namespace.name, name=waiting, target="pods/binding"),
        what=f"a node for {waiting}",
        timeout_s=PATIENCE_S,
    )
    gone = audit.last(tranche, namespace=namespace.name, name=min(placed), target="pods", verb="delete")
    assert gone is not None
    assert audit.at(follower) - audit.at(gone) < timedelta(seconds=1)
    assert namespace.pod(waiting)["spec"]["nodeName"] == NODE


def test_cores_are_not_overcommitted(tranche: Layout, namespace: Namespace) -> None:
    """Of 9 pods with 60 % of a card's compute each, 8 fit on 8 cards."""
    namespace.create(*(pod(f"p{index}", node=NODE, gpu=1, gpumem=100, gpucores=60) for index in range(9)))
    placed = {each["metadata"]["name"] for each in namespace.placed(8)}
    (waiting,) = {each["metadata"]["name"] for each in namespace.pods()} - placed
    assert "8/8 CardInsufficientCore" in namespace.unplaced(waiting)


def test_cards_are_shared_by_tflops(tranche: Layout, namespace: Namespace) -> None:
    """An H100 has 989: of 9 pods with 600 each, 8 fit on 8 cards; the limit of their containers is 61 %."""
    namespace.create(*(pod(f"p{index}", node=NODE, gpu=1, gpumem=100, gputflops=600) for index in range(9)))
    placed = namespace.placed(8)
    (waiting,) = {each["metadata"]["name"] for each in namespace.pods()} - {each["metadata"]["name"] for each in placed}
    assert "8/8 CardInsufficientTflops" in namespace.unplaced(waiting)
    annotations = placed[0]["metadata"]["annotations"]
    (share,) = record.decode(annotations[ALLOCATION]).containers["main"]
    assert (share.cores, share.tflops) == (606, 600_000)
    assert annotations["cuda-device-sm-limit.gpu.scheduling/main"] == "61"


def test_percentage_of_memory_is_resolved_on_the_card(tranche: Layout, namespace: Namespace) -> None:
    """50 % of a card of 81920 MiB is 40960 MiB."""
    namespace.create(pod("half", node=NODE, gpu=1, percentage=50))
    (each,) = namespace.placed(1)
    (share,) = record.decode(each["metadata"]["annotations"][ALLOCATION]).containers["main"]
    assert share.memory_mib == 40960
