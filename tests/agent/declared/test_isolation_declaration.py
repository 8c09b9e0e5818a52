"""The isolations that a node of a fleet file offers."""

import pytest

from agent.declared.fleet import parse
from agent.inventory import InventoryError
from allocation.isolation import Isolation


def declared(text: str) -> frozenset[Isolation]:
    """Return what a node offers whose mapping has this text."""
    report = parse(f"n1: {{count: 1, memoryMiB: 100{text}}}".encode(), file="fleet.yaml")["n1"]
    assert report.isolation is not None
    return report.isolation.offered


def test_a_node_offers_what_it_lists() -> None:
    """A simulated node offers nothing that this machine has and the file does not list."""
    assert declared(", isolation: [cuda, mps]") == {Isolation.CUDA, Isolation.MPS}
    assert declared("") == declared(", isolation: []") == frozenset()
    assert parse(b"n1: [{index: 0, memoryMiB: 100}]", file="fleet.yaml")["n1"].isolation is not None


@pytest.mark.parametrize("word", ["none", "mig", "time-slicing", "[cuda]", "1"])
def test_an_unknown_isolation_is_refused_with_the_words_that_are_known(word: str) -> None:
    """The error names the node, and says why `none` and `mig` are not among them."""
    with pytest.raises(InventoryError, match="it must list some of cuda, hami-core, mps; remove it") as refused:
        declared(f", isolation: [{word}]")
    assert "n1.isolation" in str(refused.value)


def test_a_text_in_place_of_the_list_is_refused() -> None:
    """Its characters would be taken for words."""
    with pytest.raises(InventoryError, match="it must be a list of isolations such as cuda"):
        declared(", isolation: cuda")
