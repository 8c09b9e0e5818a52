"""Combines the preferences of a pod with the score of its cards: total = sum of weight x score of 0 to 100.

A pod without preferences is recognised without looking at any node, and its node is chosen by the cards alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.steps import Steps
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.scoring import (
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources,
    taint_toleration,
    topology_spread,
)
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.settings import ScoreWeights

Values = NDArray[np.float64]


class TotalScores(msgspec.Struct, frozen=True, eq=False):
    """The totals of a pod's candidates, and their parts.

    Attributes:
        names: the candidates.
        totals: the total of each.
        parts: the score of each, 0 to 100, by the name of the weight.
    """

    names: Sequence[str]
    totals: Values
    parts: Mapping[str, Values]

    def by_node(self) -> dict[str, dict[str, float]]:
        """Return the parts of the total of each node."""
        parts: dict[str, list[float]] = {name: scores.tolist() for name, scores in self.parts.items()}
        return {node: {name: scores[place] for name, scores in parts.items()} for place, node in enumerate(self.names)}


class NodeScorer:
    """Scores the nodes that take a pod by its preferences, as kube-scheduler's plugins do."""

    def __init__(self, node_cache: NodeCache, weights: ScoreWeights) -> None:
        """Score nodes of `node_cache` by the preferences that have a weight."""
        self._node_cache = node_cache
        self._weights = weights
        self._weighted = frozenset(name for name, weight in weights.preferences.items() if weight)

    def preferences(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the preferences that may distinguish nodes for `pod`; empty for most pods."""
        if not self._weighted:
            return ()
        concerned = {
            "node_affinity": node_affinity.concerns(pod),
            "taint_toleration": taint_toleration.concerns(pod, self._node_cache),
            "pod_affinity": inter_pod_affinity.concerns(pod, self._node_cache),
            "topology_spread": topology_spread.concerns(pod),
            "image_locality": True,
            "node_resources": True,
        }
        return tuple(name for name, is_concerned in concerned.items() if is_concerned and name in self._weighted)

    def score(self, pod: Pod, names: Collection[str], candidates: Candidates) -> Steps[dict[str, Scores]]:
        """Score the candidates by the preferences `names` of `pod`, each 0 to 100."""
        scores = {}
        for name in names:
            scores[name] = yield from self._score(name, pod, candidates)
        return scores

    def _score(self, name: str, pod: Pod, candidates: Candidates) -> Steps[Scores]:
        node_cache = self._node_cache
        yield
        match name:
            case "node_affinity":
                return (yield from node_affinity.scores(pod, candidates))
            case "taint_toleration":
                return (yield from taint_toleration.scores(pod, candidates))
            case "pod_affinity":
                return (yield from inter_pod_affinity.scores(pod, candidates, node_cache))
            case "topology_spread":
                return (yield from topology_spread.scores(pod, candidates, node_cache))
            case "image_locality":
                return (yield from image_locality.scores(pod, candidates, node_cache))
            case _:
                strategy = self._weights.node_resources_strategy
                return (yield from node_resources.scores(pod, candidates, node_cache, strategy=strategy))

    def total(self, names: Sequence[str], cards: Values | None, preferences: Mapping[str, Scores]) -> TotalScores:
        """Add up the scores of the nodes `names`; of `cards`, higher ones are better, and None is for a pod without."""
        parts = {} if cards is None else {"cards": normalised(cards)}
        parts |= {name: scores.astype(np.float64) for name, scores in preferences.items()}
        weights = {"cards": self._weights.cards, **self._weights.preferences}
        totals = np.zeros(len(names))
        for name, scores in parts.items():
            totals += weights[name] * scores
        return TotalScores(names, totals, parts)


def normalised(cards: Values) -> Values:
    """Scale the scores of cards: the best candidate has 100 and the worst 0; equal ones all have 100."""
    lowest, highest = cards.min(initial=np.inf), cards.max(initial=-np.inf)
    if lowest == highest:
        return np.full_like(cards, 100.0)
    scaled: Values = 100.0 * (cards - lowest) / (highest - lowest)
    return scaled


def best_first(totals: Values, otherwise: Values) -> Iterator[int]:
    """Iterate over the positions of candidates, best first.

    Of equal totals, the one with more of `otherwise` comes first, then the one with the lower position.
    """
    order = np.lexsort((-otherwise, -totals))
    yield from order.tolist()
