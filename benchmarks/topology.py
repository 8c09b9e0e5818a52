"""The cost of a decision for a GpuClaim, whose cards are a set. The peer is the decision for a pod without a claim.

A claim that is the first of its kind takes the tables of all machine types, of which the fleet has four.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Final

import msgspec

from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement.ranking_cache import RankingCache
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.steps import finish
from allocation.topology import layout
from allocation.topology.demand import DevicePolicy, TopologyDemand, TopologyMode
from allocation.topology.layout import CardLinks, Layout
from allocation.topology.tables import TopologyTables
from benchmarks import fleets
from benchmarks.pace import within
from benchmarks.results import Row, Sample, microseconds
from cluster import process

NAME = "topology"
_FLEETS: Final = ((5_000, 8, 4), (1_000, 16, 8))
"""Nodes, cards of each, and cards of each claim."""
_POLICIES: Final[tuple[DevicePolicy, ...]] = ("contiguous", "spread")
_MODES: Final[tuple[TopologyMode, ...]] = ("Preferred", "Required", "Ignore")
_IN_USE: Final = 0.1
"""The part of the cards that is in use at the beginning."""
_FIRST_MS, _REPEATING_US, _HOSTILE_MS, _TABLES_MIB = 3, 60, 10, 20


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for nodes, cards, count in _FLEETS:
        yield from _decisions(60 if smoke else nodes, cards, count, times=5 if smoke else 1_000)
    yield _memory(layouts=2 if smoke else 64)


def _decisions(nodes: int, cards: int, count: int, *, times: int) -> Iterator[tuple[Row, Sample]]:
    ledger = _fleet(nodes, cards)
    rankings = RankingCache(ledger)
    process.settle()
    fleet = f"{nodes:,} nodes of {cards} cards, 4 machine types"
    plain = fleets.request(3000)
    seconds = [_decide(ledger, rankings, plain, fleets.ANY) for _ in range(times)]
    yield _row(f"decision without a claim, {fleet}", seconds)
    reference = median(seconds)

    kinds = [*product(_POLICIES, _MODES, range(2, count + 1))]
    seconds = [
        _decide(ledger, rankings, _whole(cards_of), _constraints(TopologyDemand(policy, mode)))
        for policy, mode, cards_of in kinds
    ]
    first = seconds[:1]
    yield _row(
        f"claim, the first of all: links of the machine types, too, {fleet}",
        first,
        target=(_FIRST_MS * 1000, max(first)),
    )
    what = f"claim, the first of its kind, {len(kinds)} kinds of {' and '.join(_POLICIES)}, {fleet}"
    yield _row(what, seconds[1:], target=(_FIRST_MS * 1000, median(seconds[1:])))

    demand = _constraints(TopologyDemand())
    seconds = [_decide(ledger, rankings, _whole(count), demand) for _ in range(times)]
    what = f"claim of {count} cards, repeating, {fleet}"
    yield _row(what, seconds, target=(_REPEATING_US, median(seconds)), peer=reference)

    chance = random.Random(3)
    hostile = [tuple(sorted(chance.sample(range(1024), 120))) for _ in range(min(times, 200))]
    hostile = [(*ids, *chance.sample(range(cards), count)) for ids in hostile]
    seconds = [
        _decide(
            ledger, rankings, _whole(count), _constraints(TopologyDemand("preferIds", prefer_ids=tuple(sorted({*ids}))))
        )
        for ids in hostile
    ]
    what = f"claim of {count} cards with preferIds like no other, {fleet}"
    yield _row(what, seconds, target=(_HOSTILE_MS * 1000, max(seconds)))
    after = [_decide(ledger, rankings, _whole(count), demand) for _ in range(5)]
    yield _row(f"the first of the repeating claim after {len(hostile)} of these, {fleet}", after[:1])


def _decide(ledger: Ledger, rankings: RankingCache, request: PodRequest, constraints: Constraints) -> float:
    """Return the seconds of a decision and its reservation, which is released afterwards."""
    begin = time.perf_counter()
    chosen = finish(rankings.ranking(request, constraints).place(request))
    if chosen is None:
        raise SystemExit("topology: no node takes a claim; make the fleet larger")
    ledger.assume("pod", chosen.allocation.node, chosen.charges)
    seconds = time.perf_counter() - begin
    ledger.release("pod")
    return seconds


def _memory(*, layouts: int) -> tuple[Row, Sample]:
    """Return the memory of the tables for as many layouts of 16 cards."""
    tables = TopologyTables()
    for number in range(layouts):
        table = tables.acquire(_layout(16, 8, numa=partial(_numa, number % 7 + 1), gbps=number + 1))
        tables.worth(table, 0xFFFF, 8, TopologyDemand())
    mib = tables.nbytes / 2**20
    what = f"memory of tables, {layouts} layouts of 16 cards, sets of 8"
    words = f"! ≤ {_TABLES_MIB} MiB"
    return Row(NAME, what, f"{mib:.1f} MiB", "", words, mib <= _TABLES_MIB), Sample(NAME, what, [mib])


def _row(
    what: str, seconds: Sequence[float], *, target: tuple[float, float] | None = None, peer: float | None = None
) -> tuple[Row, Sample]:
    """Return a row; `target` is in µs, followed by the seconds that must not exceed it."""
    figure = microseconds(list(seconds))
    reference = f"{median(seconds) / peer:.1f} × without a claim" if peer is not None else ""
    if target is None:
        return Row(NAME, what, figure, reference), Sample(NAME, what, list(seconds))
    most, measured = target
    row = Row(NAME, what, figure, reference, f"≤ {most:g} µs", within(measured * 1e6, most))
    return row, Sample(NAME, what, list(seconds))


# ---- fleets ----------------------------------------------------------------------------------------------------------


def _fleet(nodes: int, cards: int) -> Ledger:
    """Return nodes of four machine types in turn, with some cards in use."""
    chance, ledger = random.Random(1), Ledger(rows=nodes, cards=cards)
    half = cards // 2
    types = [
        _layout(cards, cards, numa=lambda bit: bit // half, gbps=450),
        _layout(cards, half, numa=lambda bit: bit // half, gbps=300),
        _layout(cards, 2, numa=lambda bit: bit // half, gbps=56),
        _layout(cards, 1, numa=lambda bit: bit // half, gbps=0),
    ]
    for number in range(nodes):
        name, kind = fleets.node(number), types[number % len(types)]
        made = tuple(Card(f"GPU-{name}-{bit}", bit, fleets.MEMORY_MIB, numa=kind.numa[bit]) for bit in range(cards))
        ledger.set_node(NodeInventory(name, made, kind))
        used = [card.uuid for card in made if chance.random() < _IN_USE]
        for uuid in used:
            ledger.assume(f"old-{uuid}", name, (fleets.charge(uuid),))
    return ledger


def _layout(cards: int, island: int, *, numa: Callable[[int], int], gbps: int) -> Layout:
    """Return cards in islands of `island` cards with the same bandwidth between all pairs."""
    name = "nvlink-{}" if gbps else ""
    return layout.of_links(tuple(CardLinks(bit, numa(bit), name.format(bit // island), gbps) for bit in range(cards)))


def _numa(nodes: int, bit: int) -> int:
    """Return the NUMA node of one of 16 cards."""
    return bit * nodes // 16


def _whole(count: int) -> PodRequest:
    """Return the request that an Exclusive claim makes."""
    return PodRequest(
        (ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", count, None, 100, 1000, whole=True),)
    )


def _constraints(demand: TopologyDemand) -> Constraints:
    return msgspec.structs.replace(fleets.ANY, topology=demand, card_kind="card")
