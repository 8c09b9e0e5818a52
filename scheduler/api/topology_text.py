"""The explanation of a set of cards as a sentence."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from allocation.topology.layout import CROSS_NUMA, LINKED, SAME_NUMA, UNKNOWN
from scheduler.api.topology_types import CardSet, MissingCard, TopologyRequest

_TIERS: Final = {
    SAME_NUMA: "same NUMA node",
    CROSS_NUMA: "different NUMA nodes",
    UNKNOWN: "unknown distance",
}
_ACCEPTED: Final = {
    LINKED: "linked",
    SAME_NUMA: "linked or on the same NUMA node",
    CROSS_NUMA: "at a known distance",
}
"""What the worst tier that a pod accepts requires of two cards."""
_PAIR: Final = 2
_SHORTEST_RANGE: Final = 3
_NAMED: Final = 5


def text(
    request: TopologyRequest,
    chosen: CardSet | None,
    better: CardSet | None,
    missing: Sequence[MissingCard],
    nearest: CardSet | None = None,
) -> str:
    """Return which set the container has or would have, and why it is not a better one; or which one it waits for."""
    if chosen is not None:
        described = f"{_cards(chosen.indexes)}: {_description(chosen, request)}"
        if better is None:
            others = f"set of {request.cards} cards" if request.cards > 1 else "card"
            return f"{described}; no {others} of the node is better"
        return f"{described}; {_better('would be better', better, request, missing)}"
    required = f"the pod requires {_requirement(request)}"
    if better is None:
        thing = "such set among its usable cards" if request.cards > 1 else "such card that is usable"
        best = (
            f"; its best: {_cards(nearest.indexes)} ({_description(nearest, request)})" if nearest is not None else ""
        )
        return f"{required}; the node has no {thing}, even if no pod held any of them{best}"
    return f"{required}; {_better('would do', better, request, missing)}"


def _better(verb: str, better: CardSet, request: TopologyRequest, missing: Sequence[MissingCard]) -> str:
    said = f"{_cards(better.indexes)} {verb} ({_description(better, request)})"
    if not missing:
        return f"{said}, and {'are all' if len(better.indexes) > 1 else 'is'} free now"
    return f"{said}, but {' and '.join(_by_holder(missing))}"


def _by_holder(missing: Sequence[MissingCard]) -> Iterator[str]:
    """Yield for each pod, or several that share cards, which cards it holds."""
    indexes: dict[tuple[str, ...], list[int]] = {}
    for card in missing:
        indexes.setdefault(card.pods, []).append(card.index)
    for pods, held in indexes.items():
        more = [f"{len(pods) - _NAMED} more pods"] if len(pods) > _NAMED else []
        state = f"held by {', '.join([*pods[:_NAMED], *more])}" if pods else "not free"
        yield f"{_cards(held)} {'is' if len(held) == 1 else 'are'} {state}"


def _description(cards: CardSet, request: TopologyRequest) -> str:
    return ", ".join((*_connections(cards), *_indexes(cards, request), *_shortfalls(cards, request)))


def _connections(cards: CardSet) -> Iterator[str]:
    """Yield how the cards are connected; of a single card, how it is connected to others."""
    count, speed = len(cards.indexes), f"{cards.bandwidth_gbps} GB/s"
    if count == 1:
        yield f"one of {cards.island_cards} linked cards, {speed}" if cards.island_cards > 1 else "without links"
        return
    if cards.islands == count:
        yield "no links between them"
    else:
        slowest = "slowest pair " if count > _PAIR else ""
        yield "one island" if cards.islands == 1 else f"{cards.islands} islands"
        yield f"{slowest}{speed if cards.bandwidth_gbps else 'not linked'}"
    if cards.tier != LINKED:
        yield _TIERS[cards.tier]


def _indexes(cards: CardSet, request: TopologyRequest) -> Iterator[str]:
    """Yield what a policy looks at in the indexes of cards."""
    indexes = cards.indexes
    if request.policy == "preferIds":
        preferred = len(set(indexes).intersection(request.prefer_ids))
        yield f"{preferred} of {len(request.prefer_ids)} preferred cards"
    if request.policy == "spread" and len(indexes) > 1:
        yield f"sum of index distances {sum(other - one for one, other in combinations(indexes, 2))}"
    if request.policy in ("contiguous", "preferIds") and indexes[-1] - indexes[0] >= len(indexes):
        yield "not consecutive"


def _shortfalls(cards: CardSet, request: TopologyRequest) -> Iterator[str]:
    """Yield which demands of the pod the set does not meet; the mode Ignore and HAMi's policy have none."""
    if request.mode == "Ignore" or request.policy == "linked":
        return
    if cards.bandwidth_gbps < request.min_bandwidth_gbps:
        yield f"less than the {request.mode.lower()} {request.min_bandwidth_gbps} GB/s"
    if request.max_tier is not None and cards.tier > request.max_tier:
        yield f"worse than the {request.mode.lower()} tier {request.max_tier}"


def _requirement(request: TopologyRequest) -> str:
    parts = [f"{request.cards} cards" if request.cards > 1 else "a card"]
    if request.policy == "preferIds":
        parts.append(f"out of {_cards(request.prefer_ids)}")
    if request.policy == "contiguous" and request.max_tier is None and request.cards > 1:
        parts.append("in one island")
    conditions = []
    if request.min_bandwidth_gbps:
        conditions.append(f"linked at {request.min_bandwidth_gbps} GB/s or more")
    if request.max_tier in _ACCEPTED and request.cards > 1:
        conditions.append(f"every two of them {_ACCEPTED[request.max_tier]} (tier {request.max_tier})")
    if not request.accepts_unknown and request.cards > 1:
        conditions.append("at known distances")
    return ", ".join((" ".join(parts), *conditions))


def _cards(indexes: Sequence[int]) -> str:
    """Return `card 4`, or `cards 0-3,5`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    words = [f"{run[0]}-{run[-1]}" if len(run) >= _SHORTEST_RANGE else ",".join(map(str, run)) for run in runs]
    return f"card{'s' if len(indexes) > 1 else ''} {','.join(words)}"
