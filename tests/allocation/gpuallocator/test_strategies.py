"""TensorFusion's vector: six cards on three nodes, three strategies."""

from __future__ import annotations

from fractions import Fraction

import pytest

from allocation.adjustment import Amounts
from allocation.errors import AllocationError
from allocation.gpuallocator.allocator import GpuAllocator
from allocation.gpuallocator.strategies import CardUse, NodeScore, StrategyConfig, new_strategy
from allocation.inventory import Card
from tests.allocation.support.gpu_allocator import GIB, Surroundings, allocator, inventory, request

HALF = Fraction(1, 2)
_CARDS = {  # total TFLOPs and GiB of the card, and what is available of them
    ("node1", "g1"): (20, 80, 10, 40),
    ("node1", "g2"): (20, 80, 12, 42),
    ("node1", "g3"): (20, 80, 14, 44),
    ("node2", "g4"): (25, 100, 20, 80),
    ("node2", "g5"): (25, 100, 18, 75),
    ("node3", "g6"): (40, 120, 30, 100),
}
CARDS = [
    CardUse(
        name,
        node,
        Amounts(memory, 1000, tflops * 1000),
        Amounts(memory - free_memory, 0, (tflops - free_tflops) * 1000),
    )
    for (node, name), (tflops, memory, free_tflops, free_memory) in _CARDS.items()
]


def config(node_score: NodeScore = "sum") -> StrategyConfig:
    """Return the vector's weights."""
    return StrategyConfig(HALF, HALF, node_score)


def test_scores_of_the_vector() -> None:
    """A half is rounded up: 62.5 is 63, and 73.5 is 74."""
    strategy = new_strategy("LowLoadFirst", config())
    assert [strategy.score(each) for each in CARDS] == [50, 56, 63, 80, 74, 79]
    nodes = [[each for each in CARDS if each.node == node] for node in ("node1", "node2", "node3")]
    assert [strategy.score_node(each) for each in nodes] == [169, 154, 79]


@pytest.mark.parametrize(
    ("mode", "count", "names", "node_score"),
    [
        ("LowLoadFirst", 1, ("g3",), "sum"),
        ("LowLoadFirst", 2, ("g3", "g2"), "sum"),
        ("LowLoadFirst", 3, ("g3", "g2", "g1"), "sum"),
        ("LowLoadFirst", 1, ("g6",), "average"),
        ("LowLoadFirst", 2, ("g4", "g5"), "average"),
        ("CompactFirst", 2, ("g1", "g2"), "sum"),
        ("CompactFirst", 3, ("g1", "g2", "g3"), "average"),
        ("NodeCompactGPULowLoad", 2, ("g3", "g2"), "average"),
        ("NodeCompactGPULowLoad", 1, ("g3",), "sum"),
    ],
)
def test_cards_of_the_vector(mode: str, count: int, names: tuple[str, ...], node_score: NodeScore) -> None:
    """The order of the cards is by their scores."""
    assert new_strategy(mode, config(node_score)).select_gpus(CARDS, count) == names


@pytest.mark.parametrize(("mode", "names"), [("LowLoadFirst", ("g3", "g2")), ("CompactFirst", ("g1", "g2"))])
def test_the_vector_through_the_allocator(mode: str, names: tuple[str, ...]) -> None:
    """The cards have these TFLOPs and GiB, and what is not available of them pods have requested."""
    around = Surroundings()
    made = GpuAllocator(
        clock=lambda: 0.0,
        pods=around,
        sink=around,
        pools={"p": ()},
        placement_modes={"p": mode},
        config=config(),
    )
    by_node: dict[str, list[Card]] = {}
    for (node, name), (tflops, memory, _, _) in _CARDS.items():
        by_node.setdefault(node, []).append(Card(name, len(by_node[node]), memory * GIB, tflops=tflops))
    made.setup_with_manager([(inventory(node, *cards), {}) for node, cards in by_node.items()], [])
    for (_, name), (tflops, memory, free_tflops, free_memory) in _CARDS.items():
        amounts = Amounts((memory - free_memory) * GIB, tflops=(tflops - free_tflops) * 1000)
        made.bind([name], request(name, memory=amounts.memory_mib, cores=0, tflops=amounts.tflops))
    stores = made.get_allocation_info()[0]
    assert [made.score(request(), [name])[node][name] for node, name in _CARDS] == (
        [50, 56, 63, 80, 74, 79] if mode == "LowLoadFirst" else [50, 44, 38, 20, 27, 21]
    )
    assert stores["g6"].available == Amounts(100 * GIB, 750, 30_000)
    gpus, _ = made.check_quota_and_filter(request(memory=1, cores=0, tflops=10_000, count=2), simulate=False)
    assert made.select(request(count=2), gpus) == names


@pytest.mark.parametrize("mode", ["CompactFirst", "LowLoadFirst", "NodeCompactGPULowLoad"])
def test_more_cards_than_any_node_has_are_an_error(mode: str) -> None:
    """So is a choice among none."""
    strategy = new_strategy(mode, config())
    with pytest.raises(AllocationError, match="not enough gpus in scoring stage: no node has 4"):
        strategy.select_gpus(CARDS, 4)
    with pytest.raises(AllocationError, match="no GPUs available"):
        strategy.select_gpus([], 1)


def test_capacity_of_zero_counts_zero() -> None:
    """Neither used nor available, whatever the strategy; weights of more than one are cut at 100."""
    nothing = CardUse("g", "n", Amounts(), Amounts())
    full = CardUse("g", "n", Amounts(10, 10), Amounts(10, 10))
    assert [new_strategy(mode).score(nothing) for mode in ("CompactFirst", "LowLoadFirst")] == [0, 0]
    assert new_strategy("CompactFirst", StrategyConfig(Fraction(2), Fraction(1))).score(full) == 100


@pytest.mark.parametrize(("memory", "compute", "chosen"), [(1, 0, "a-0"), (0, 1, "a-1")])
def test_weights_decide_through_select(memory: int, compute: int, chosen: str) -> None:
    """One card has most of its memory left, and the other most of its compute."""
    made, _ = allocator(1, mode="LowLoadFirst", config=StrategyConfig(Fraction(memory), Fraction(compute)))
    made.bind(["a-0"], request("compute", memory=1, cores=900))
    made.bind(["a-1"], request("memory", memory=70_000, cores=10))
    assert made.select(request(), ["a-0", "a-1"]) == (chosen,)


def test_node_score_of_the_store_is_over_all_its_cards() -> None:
    """`select` has only those that it gets."""
    made, _ = allocator(2, mode="CompactFirst")
    made.bind(["a-0"], request("full", memory=80_000, cores=1000))
    made.bind(["b-1"], request("some", memory=8_000, cores=100))
    assert made.select(request(), ["a-1", "b-1"]) == ("b-1",)
    assert made.select_from_store(request(), ["a-1", "b-1"]) == ("a-1",)
    assert made.score(request(), ["a-0", "b-1"]) == {"a": {"a-0": 98}, "b": {"b-1": 10}}
