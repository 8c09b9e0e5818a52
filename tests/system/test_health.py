"""A card that falls ill takes no new pod, and takes pods again when it is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from allocation import record
from allocation.names import ALLOCATION
from lab import kubectl, wait
from lab.fleet import CARDS_PER_NODE
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
NODE = "gpu-sim-2"


@pytest.fixture
def make_ill(tranche: Layout) -> Iterator[Callable[..., None]]:
    """Mark cards of a node as ill, where its agent reads it, and wait until they are reported so; well afterwards."""
    file = tranche.config / "fleet.yaml"
    before = file.read_text()

    def mark(*cards: int) -> None:
        fleet = yaml.safe_load(before)
        fleet[NODE] = {**fleet[NODE], "unhealthy": list(cards)}
        file.write_text(yaml.safe_dump(fleet))
        wait.until(lambda: ill(tranche) == set(cards), what=f"cards {cards} reported ill", timeout_s=PATIENCE_S)

    yield mark
    file.write_text(before)
    wait.until(lambda: not ill(tranche), what="all cards reported well", timeout_s=PATIENCE_S)


def ill(layout: Layout) -> set[int]:
    """Answer the indexes of the cards that are reported ill."""
    devices = kubectl.get(layout, "gpunodestatus", NODE)["status"]["devices"]
    return {device["id"] for device in devices if device["health"] != "Healthy"}


def test_an_ill_card_is_never_given(make_ill: Callable[..., None], namespace: Namespace) -> None:
    """Seven whole cards of eight are given; who wants the eighth learns that it is ill, and gets it when it is well."""
    make_ill(7)
    namespace.create(*(pod(f"p{index}", node=NODE, gpu=1) for index in range(CARDS_PER_NODE)))
    placed = namespace.placed(CARDS_PER_NODE - 1)
    cards = {
        share.index
        for each in placed
        for share in record.decode(each["metadata"]["annotations"][ALLOCATION]).containers["main"]
    }
    assert cards == set(range(7))
    (waiting,) = {each["metadata"]["name"] for each in namespace.pods()} - {each["metadata"]["name"] for each in placed}
    assert "1/8 CardNotHealth" in namespace.unplaced(waiting)
    make_ill()
    namespace.placed(CARDS_PER_NODE)


def test_a_node_whose_cards_are_all_ill_takes_nobody(make_ill: Callable[..., None], namespace: Namespace) -> None:
    """The reason says so for each card."""
    make_ill(*range(CARDS_PER_NODE))
    namespace.create(pod("waits", node=NODE, gpu=1, gpumem=100))
    assert "8/8 CardNotHealth" in namespace.unplaced("waits")
