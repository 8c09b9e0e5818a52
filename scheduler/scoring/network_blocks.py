"""Few network blocks: the nearer a node is to the pods of the same gang, the better.

Of two nodes, the one is nearer that has more pods of the gang in its narrowest block; if these are equal, the one that
has more in the next wider block, and so on. So a gang fills a block before it begins another one. Nodes of one block
are equal, and the cards choose among them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.steps import Steps
from scheduler.filters.network_blocks import NetworkBlocks
from scheduler.gangs.gangs import Gangs
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import BEST

_STEP: Final = 512
"""Nodes whose pods are counted between two interruptions."""


def concerns(pod: Pod, gangs: Gangs, network: NetworkBlocks) -> bool:
    """Whether the gang of the pod has nodes already, and nodes are in blocks."""
    return bool(gangs.nodes_of(pod)) and bool(network)


def scores(pod: Pod, candidates: Candidates, gangs: Gangs, network: NetworkBlocks) -> Steps[Scores]:
    """Return the score of each candidate: 100 for the nearest, half of it for the next, and so on; 0 for no block."""
    pods = yield from _pods_of_blocks(gangs.nodes_of(pod), network)
    nearness = []
    for level in reversed(range(len(network.levels))):
        ids = yield from candidates.numbers(partial(_block_id, network, level), ("network block", level))
        nearness.append(_looked_up(ids, pods[level]))
    return _halving(nearness)


def _block_id(network: NetworkBlocks, level: int, node: Node) -> int:
    """Return the number of a node's block, 0 for none."""
    block = network.of(node.metadata.name)[level]
    return block.id if block is not None else 0


def _pods_of_blocks(nodes: Mapping[str, int], network: NetworkBlocks) -> Steps[Sequence[Mapping[int, int]]]:
    """Return for each level, the widest first, how many pods the blocks have, by their numbers."""
    pods: list[Counter[int]] = [Counter() for _ in network.levels]
    for position, (name, number) in enumerate(tuple(nodes.items())):
        if position % _STEP == _STEP - 1:
            yield
        for of_level, block in zip(pods, network.of(name), strict=True):
            if block is not None:
                of_level[block.id] += number
    return pods


def _looked_up(ids: NDArray[np.int64], pods: Mapping[int, int]) -> Scores:
    """Return the number of pods in each of the blocks `ids`."""
    if not pods:
        return np.zeros_like(ids)
    known = np.array(sorted(pods), np.int64)
    counts = np.array([pods[number] for number in known.tolist()], np.int64)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[places] == ids, counts[places], 0)


def _halving(nearness: Sequence[Scores]) -> Scores:
    """Score candidates by their numbers of pods at each level, the narrowest first.

    A fixed distance between the nearest candidates and all others lets one weight decide whether cards can outweigh it.
    """
    left = np.any(nearness, axis=0)
    scores, score = np.zeros(len(left), np.int64), BEST
    while score and left.any():
        nearest = left.copy()
        for counts in nearness:
            nearest &= counts == counts[nearest].max()
        scores[nearest] = score
        left &= ~nearest
        score //= 2
    return scores
