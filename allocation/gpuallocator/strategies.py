"""TensorFusion's strategies: which node, and which of its cards, by how full or how empty they are.

A card's score is the used or the available percentage of its memory and of its compute, weighted, from 0 to 100; a half
is rounded up, and a resource without capacity counts 0. Compute is in TFLOPs where they are known. The score of a node
is the mean or the sum over its cards.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal

import msgspec

from allocation.adjustment import Amounts
from allocation.errors import AllocationError

Measure = Literal["used", "available"]
NodeScore = Literal["average", "sum"]


class CardUse(msgspec.Struct, frozen=True):
    """A card as a strategy sees it: its UUID, its node, its capacity and what of it is used."""

    name: str
    node: str
    total: Amounts
    used: Amounts


class StrategyConfig(msgspec.Struct, frozen=True):
    """How much memory and compute count, and what the score of a node is.

    Attributes:
        vram_weight: of memory.
        tflops_weight: of compute.
        node_score: the mean of its cards' scores, or their sum, as in TensorFusion, where larger nodes win.
    """

    vram_weight: Fraction = Fraction(7, 10)
    tflops_weight: Fraction = Fraction(3, 10)
    node_score: NodeScore = "average"


class Strategy(msgspec.Struct, frozen=True):
    """Scores cards and nodes, the best highest.

    Attributes:
        name: of the strategy.
        of_node: what the score of a node is made of.
        of_card: what the score of a card is made of.
        config: the weights.
    """

    name: str
    of_node: Measure
    of_card: Measure
    config: StrategyConfig = StrategyConfig()

    def score(self, card: CardUse) -> int:
        """Return the score of a card, 0 to 100."""
        return self._score(card, self.of_card)

    def score_node(self, cards: Iterable[CardUse]) -> Fraction:
        """Return the score of a node with these cards."""
        scores = [self._score(card, self.of_node) for card in cards]
        return Fraction(sum(scores), len(scores) if self.config.node_score == "average" and scores else 1)

    def select_gpus(
        self, cards: Iterable[CardUse], count: int, *, all_cards: Mapping[str, Iterable[CardUse]] | None = None
    ) -> tuple[str, ...]:
        """Return the UUIDs of the best `count` of `cards`, all on the best node with enough of them.

        The score of a node is over `cards`, or over `all_cards` by node, if they are given. Ties are broken by names.

        Raises:
            AllocationError: no node has enough of them.
        """
        by_node: dict[str, list[CardUse]] = {}
        for card in cards:
            by_node.setdefault(card.node, []).append(card)
        if not by_node:
            raise AllocationError("no GPUs available")
        scores = {node: self.score_node((all_cards or by_node).get(node, ())) for node in by_node}
        for node in sorted(by_node, key=lambda node: (-scores[node], node)):
            if len(by_node[node]) >= count:
                best = sorted(by_node[node], key=lambda card: (-self.score(card), card.name))
                return tuple(card.name for card in best[:count])
        raise AllocationError(f"not enough gpus in scoring stage: no node has {count} that fit")

    def _score(self, card: CardUse, measure: Measure) -> int:
        """Return the weighted percentages in whole numbers: a fraction per card costs ten times as much."""
        memory, memory_total = _part(card.total.memory_mib, card.used.memory_mib, measure)
        in_tflops = card.total.tflops > 0
        compute_of, compute_used = (each.tflops if in_tflops else each.cores for each in (card.total, card.used))
        cores, cores_total = _part(compute_of, compute_used, measure)
        (vram, vram_of), (tflops, tflops_of) = (
            weight.as_integer_ratio() for weight in (self.config.vram_weight, self.config.tflops_weight)
        )
        whole = memory_total * vram_of * cores_total * tflops_of
        weighted = 100 * (memory * vram * cores_total * tflops_of + cores * tflops * memory_total * vram_of)
        return min(max((2 * weighted + whole) // (2 * whole), 0), 100)


COMPACT_FIRST: Final = Strategy("CompactFirst", "used", "used")
LOW_LOAD_FIRST: Final = Strategy("LowLoadFirst", "available", "available")
NODE_COMPACT_GPU_LOW_LOAD: Final = Strategy("NodeCompactGPULowLoad", "used", "available")


def new_strategy(mode: str, config: StrategyConfig = StrategyConfig()) -> Strategy:  # noqa: B008 -- frozen
    """Return the strategy of a placement mode; an unknown mode is NodeCompactGPULowLoad."""
    known = {each.name: each for each in (COMPACT_FIRST, LOW_LOAD_FIRST)}
    return msgspec.structs.replace(known.get(mode, NODE_COMPACT_GPU_LOW_LOAD), config=config)


def _part(total: int, used: int, measure: Measure) -> tuple[int, int]:
    """Return what is used, or available, and of how much; nothing of 1 if there is no capacity."""
    if not total:
        return 0, 1
    return (used if measure == "used" else total - used), total
