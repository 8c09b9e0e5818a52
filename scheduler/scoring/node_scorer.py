"""Combines the preferences of a pod with the score of its cards: total = sum of weight x score of 0 to 100.

A pod without preferences is recognised without looking at any node, and its node is chosen by the cards alone.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.steps import Steps
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.scoring import (
    image_locality,
    inter_pod_affinity,
    network_blocks,
    node_affinity,
    node_resources,
    taint_toleration,
    topology_spread,
)
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.node_resources import Strategy
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


class _Preference(msgspec.Struct, frozen=True):
    """Whether a preference may distinguish nodes for a pod, and its score of each candidate."""

    concerns: Callable[[Pod], bool]
    scores: Callable[[Pod, Candidates], Steps[Scores]]


class NodeScorer:
    """Scores the nodes that take a pod by its preferences, as kube-scheduler's plugins do."""

    def __init__(self, node_cache: NodeCache, weights: ScoreWeights) -> None:
        """Score nodes of `node_cache` by the preferences that have a weight."""
        self._weights = {"cards": weights.cards, **weights.preferences}
        self._preferences = {
            name: preference
            for name, preference in _preferences(node_cache, weights.node_resources_strategy).items()
            if weights.preferences[name]
        }

    def preferences(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the preferences that may distinguish nodes for `pod`; empty for most pods."""
        return tuple([name for name, preference in self._preferences.items() if preference.concerns(pod)])

    def score(self, pod: Pod, names: Collection[str], candidates: Candidates) -> Steps[dict[str, Scores]]:
        """Score the candidates by the preferences `names` of `pod`, each 0 to 100."""
        scores = {}
        for name in names:
            yield
            scores[name] = yield from self._preferences[name].scores(pod, candidates)
        return scores

    def total(self, names: Sequence[str], cards: Values | None, preferences: Mapping[str, Scores]) -> TotalScores:
        """Add up the scores of the nodes `names`; of `cards`, higher ones are better, and None is for a pod without."""
        parts = {} if cards is None else {"cards": normalised(cards)}
        parts |= {name: scores.astype(np.float64) for name, scores in preferences.items()}
        totals = np.zeros(len(names))
        for name, scores in parts.items():
            totals += self._weights[name] * scores
        return TotalScores(names, totals, parts)


def _preferences(node_cache: NodeCache, strategy: Strategy) -> dict[str, _Preference]:
    """Return all preferences by the names of their weights; the last two concern every pod."""
    resources = partial(node_resources.scores, node_cache=node_cache, strategy=strategy)
    return {
        "node_affinity": _Preference(node_affinity.concerns, node_affinity.scores),
        "taint_toleration": _Preference(
            partial(taint_toleration.concerns, index=node_cache.index), taint_toleration.scores
        ),
        "pod_affinity": _Preference(
            partial(inter_pod_affinity.concerns, node_cache=node_cache),
            partial(inter_pod_affinity.scores, node_cache=node_cache),
        ),
        "topology_spread": _Preference(
            topology_spread.concerns, partial(topology_spread.scores, node_cache=node_cache)
        ),
        "network_blocks": _Preference(
            partial(network_blocks.concerns, gangs=node_cache.gangs, network=node_cache.network),
            partial(network_blocks.scores, gangs=node_cache.gangs, network=node_cache.network),
        ),
        "image_locality": _Preference(_concerns_every_pod, partial(image_locality.scores, node_cache=node_cache)),
        "node_resources": _Preference(_concerns_every_pod, resources),
    }


def _concerns_every_pod(_pod: Pod) -> bool:
    return True


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
