"""An unhealthy card accepts no new pod, and accepts pods again when it is healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from allocation.names import ALLOCATION
from allocation.wire import record
from lab import wait
from lab.client import client
from lab.fleet import CARDS_PER_NODE
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-2"


@pytest.fixture
def mark_unhealthy(tranche: Layout) -> Iterator[Callable[..., None]]:
    """A function that marks cards of a node as unhealthy and waits for the report; all are healthy afterwards."""
    file = tranche.config / "fleet.yaml"
    before = file.read_text()

    def mark(*cards: int) -> None:
        fleet = yaml.safe_load(before)
        fleet[NODE] = {**fleet[NODE], "unhealthy": list(cards)}
        file.write_text(yaml.safe_dump(fleet))
        wait.until(
            lambda: unhealthy(tranche) == set(cards), what=f"cards {cards} reported unhealthy", timeout_s=PATIENCE_S
        )

    yield mark
    file.write_text(before)
    wait.until(lambda: not unhealthy(tranche), what="all cards reported healthy", timeout_s=PATIENCE_S)


def unhealthy(layout: Layout) -> set[int]:
    """Return the indexes of the cards that are reported unhealthy."""
    devices = client(layout).get("gpunodestatus", NODE)["status"]["devices"]
    return {device["id"] for device in devices if device["health"] != "Healthy"}


def test_unhealthy_card_is_never_allocated(mark_unhealthy: Callable[..., None], namespace: Namespace) -> None:
    """Seven of eight whole cards are allocated; the eighth pod learns that its card is unhealthy, and gets it later."""
    mark_unhealthy(7)
    namespace.create(*(pod(f"p{index}", node=NODE, gpu=1) for index in range(CARDS_PER_NODE)))
    placed = namespace.placed(CARDS_PER_NODE - 1)
    cards = {
        share.index
        for each in placed
        for share in record.decode(each["metadata"]["annotations"][ALLOCATION]).containers["main"]
    }
    assert cards == set(range(7))
    (pending,) = {each["metadata"]["name"] for each in namespace.pods()} - {each["metadata"]["name"] for each in placed}
    assert "1/8 CardNotHealth" in namespace.unplaced(pending)
    mark_unhealthy()
    namespace.placed(CARDS_PER_NODE)


def test_node_with_only_unhealthy_cards_accepts_no_pod(
    mark_unhealthy: Callable[..., None], namespace: Namespace
) -> None:
    """The reason names each card."""
    mark_unhealthy(*range(CARDS_PER_NODE))
    namespace.create(pod("waits", node=NODE, gpu=1, gpumem=100))
    assert "8/8 CardNotHealth" in namespace.unplaced("waits")
