"""The cards of a claim are the best set of the node, and nodes are rejected and ranked by their sets."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import msgspec
import pytest

from allocation.constraints import Constraints, read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import NoPlacement, Placement, place
from allocation.placement.query import PlacementQuery
from allocation.placement.ranking_cache import RankingCache
from allocation.reasons import CardReason
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.topology import order
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import CardLinks, of_links
from tests.allocation.support import machines
from tests.allocation.support.builders import cards_of, container, pod, reasons, whole

Machine = tuple[CardLinks, ...]


def node(name: str, machine: Machine, *, unhealthy: Sequence[int] = ()) -> NodeInventory:
    """Return a node of a machine type."""
    made = tuple(
        Card(f"GPU-{name}-{each.index}", each.index, 80_000, numa=each.numa, healthy=each.index not in unhealthy)
        for each in machine
    )
    return NodeInventory(name, made, of_links(machine))


def ledger_of(*inventories: NodeInventory) -> Ledger:
    """Return a ledger of these nodes."""
    ledger = Ledger()
    for each in inventories:
        ledger.set_node(each)
    return ledger


def take(ledger: Ledger, name: str, *indexes: int) -> None:
    """Let other pods use cards of a node."""
    for index in indexes:
        uuid = f"GPU-{name}-{index}"
        query = PlacementQuery(pod(whole()), constraints(None, use_uuids=frozenset({uuid})))
        finished = finish(place(LedgerView(ledger), query, [name]))
        assert isinstance(finished, Placement)
        ledger.assume(f"other-{uuid}", name, finished.charges)


def constraints(demand: TopologyDemand | None, **changes: object) -> Constraints:
    """Return the constraints of a pod with a demand."""
    return msgspec.structs.replace(read_constraints({}, AllocationSettings()), topology=demand, **changes)


def put(ledger: Ledger, count: int, demand: TopologyDemand) -> Placement | NoPlacement:
    """Place a claim of whole cards, and compare with the incremental decision; nothing is reserved."""
    request, wanted = pod(whole(count)), constraints(demand)
    outcome = finish(place(LedgerView(ledger), PlacementQuery(request, wanted), ledger.nodes))
    fast = finish(RankingCache(ledger).ranking(request, wanted).place(request))
    assert (fast.allocation if fast else None) == (outcome.allocation if isinstance(outcome, Placement) else None)
    return outcome


REQUIRED = TopologyDemand(mode="Required", min_bandwidth_gbps=600)
PREFERRED = TopologyDemand(mode="Preferred", min_bandwidth_gbps=600)
IGNORED = TopologyDemand(mode="Ignore", min_bandwidth_gbps=600)


def example() -> Ledger:
    """Return the node of ziwon's documentation: 0-3 at 600 GB/s, 4-7 at 64, 7 unhealthy."""
    return ledger_of(node("n0", machines.example_node(), unhealthy=[7]))


def test_four_fast_cards_are_those_of_the_fast_island() -> None:
    """4 contiguous cards at 600 GB/s are 0 to 3, whether required or preferred."""
    for demand in (REQUIRED, PREFERRED):
        assert cards_of(put(example(), 4, demand)) == [0, 1, 2, 3]


def test_required_rejects_where_the_fast_island_is_not_whole() -> None:
    """With card 0 in use no set of 4 has 600 GB/s: each card that fits says so, and pods that end could help."""
    ledger = example()
    take(ledger, "n0", 0)
    outcome = put(ledger, 4, REQUIRED)
    assert reasons(outcome) == "1/8 CardNotHealth, 1/8 ExclusiveDeviceAllocateConflict, 6/8 CardTopologyMismatch"
    assert isinstance(outcome, NoPlacement)
    assert outcome.rejections["n0"].resolvable


def test_preferred_is_placed_where_the_fast_island_is_not_whole() -> None:
    """Preferred never rejects: it gets the best set that is free."""
    ledger = example()
    take(ledger, "n0", 0)
    assert len(cards_of(put(ledger, 4, PREFERRED))) == 4


def test_an_unhealthy_card_is_never_given() -> None:
    """8 cards do not fit where 7 are healthy, whatever the mode."""
    for demand in (REQUIRED, PREFERRED, IGNORED):
        text = reasons(put(example(), 8, demand))
        assert text == "1/8 CardNotHealth, 7/8 AllocatedCardsInsufficientRequest"


def test_a_machine_that_can_never_satisfy_a_claim_is_unresolvable() -> None:
    """No pod that ends makes 5 cards of one island out of two islands of 4."""
    outcome = put(example(), 5, TopologyDemand(mode="Required"))
    assert isinstance(outcome, NoPlacement)
    assert CardReason.CardTopologyMismatch in outcome.rejections["n0"].counts
    assert not outcome.rejections["n0"].resolvable


def test_the_faster_of_two_nodes_wins() -> None:
    """Preferred and Required rank nodes by the bandwidth of their best free set; for Ignore a tie is a tie."""
    slow = tuple(msgspec.structs.replace(each, bandwidth_gbps=100) for each in machines.dgx_h100())
    ledger = ledger_of(node("a", slow), node("b", machines.dgx_h100()))
    chosen = {mode: put(ledger, 4, TopologyDemand(mode=mode)) for mode in ("Preferred", "Required", "Ignore")}
    nodes = {mode: each.allocation.node for mode, each in chosen.items() if isinstance(each, Placement)}
    assert nodes == {"Preferred": "b", "Required": "b", "Ignore": "a"}


def test_sets_with_the_demanded_bandwidth_come_before_faster_nodes_without_it() -> None:
    """A node whose free set meets the minimum comes before one whose free set does not, however full they are."""
    ledger = ledger_of(node("a", machines.example_node()), node("b", machines.example_node()))
    take(ledger, "a", 0)
    assert {put(ledger, 4, PREFERRED).allocation.node} == {"b"}  # type: ignore[union-attr]


def test_a_single_card_does_not_draw_pods_to_fast_nodes() -> None:
    """One card needs no links: the node is chosen by its score, and the card comes from the smallest island."""
    ledger = ledger_of(node("a", machines.pcie_only()), node("b", machines.dgx_h100()))
    outcome = put(ledger, 1, TopologyDemand())
    assert isinstance(outcome, Placement)
    assert outcome.allocation.node == "a"


def test_a_tight_fit_leaves_whole_islands_whole() -> None:
    """Of equal sets, the one comes first that leaves the fewest free cards over in its island."""
    ledger = ledger_of(node("n0", machines.islands_2_2()))
    take(ledger, "n0", 0)
    assert cards_of(put(ledger, 1, TopologyDemand())) == [2]


def test_spread_takes_a_card_of_each_island() -> None:
    """Two cards of two islands, as far apart as possible."""
    assert cards_of(put(example(), 2, TopologyDemand("spread"))) == [0, 6]


def test_preferred_ids_come_first() -> None:
    """Those that are free are taken, then the rest; Required takes no others."""
    ledger = example()
    take(ledger, "n0", 2)
    some = TopologyDemand("preferIds", prefer_ids=(2, 5))
    assert 5 in cards_of(put(ledger, 2, some))
    assert "CardTopologyMismatch" in reasons(put(ledger, 2, msgspec.structs.replace(some, mode="Required")))


def test_containers_without_a_claim_have_sets_of_their_own() -> None:
    """Two containers of two cards each, as TensorFusion's annotations demand: two pairs of one NUMA node each."""
    ledger = ledger_of(node("n0", machines.pcie_only()))
    near = TopologyDemand(mode="Required", max_tier=1)
    two = pod(container("a", count=2, memory=70_000), container("b", count=2, memory=70_000))
    outcome = finish(place(LedgerView(ledger), PlacementQuery(two, constraints(near)), ledger.nodes))
    numa = {each.index: each.numa for each in machines.pcie_only()}
    for name in ("a", "b"):
        assert len({numa[index] for index in cards_of(outcome, name)}) == 1


@pytest.mark.parametrize("name", ["dgx1_v100", "dgx_a100", "dgx_h100", "pcie_pairs", "islands_2_2", "pcie_only"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_machine_gives_a_set_to_a_preferred_claim(name: str, count: int) -> None:
    """Preferred never rejects a node with enough free cards."""
    outcome = put(ledger_of(node("n0", getattr(machines, name)())), count, TopologyDemand(min_bandwidth_gbps=10_000))
    assert len(cards_of(outcome)) == count


# ---- a random fleet ------------------------------------------------------------------------------------------------

TYPES: Mapping[str, Machine] = {
    "dgx1": machines.dgx1_v100(),
    "h100": machines.dgx_h100(),
    "pairs": machines.pcie_pairs(),
    "islands": machines.islands_2_2(),
}


def claims(chance: random.Random) -> Iterator[tuple[int, TopologyDemand]]:
    """Yield random claims for ever."""
    while True:
        policy = chance.choice(("contiguous", "contiguous", "spread", "preferIds"))
        yield (
            chance.choice((1, 2, 2, 3, 4, 4, 8)),
            TopologyDemand(
                policy,
                chance.choice(("Preferred", "Required", "Ignore")),
                min_bandwidth_gbps=chance.choice((0, 0, 25, 50, 200)),
                max_tier=chance.choice((None, None, 0, 1, 2)),
                prefer_ids=tuple(sorted(chance.sample(range(8), 3))) if policy == "preferIds" else (),
            ),
        )


def test_no_claim_of_a_fleet_could_have_a_better_set_on_its_node() -> None:
    """1,000 claims on 200 nodes of 4 machine types: brute force finds no strictly better free set on any chosen node.

    A claim that no node takes has no acceptable free set on any node.
    """
    chance = random.Random(21)  # noqa: S311 -- a test
    kinds = [*TYPES]
    of_node = {f"n{number:03}": TYPES[kinds[number % len(kinds)]] for number in range(200)}
    ledger = ledger_of(*(node(name, machine) for name, machine in of_node.items()))
    layouts = {name: of_links(machine) for name, machine in of_node.items()}
    cache, running, placed = RankingCache(ledger), list[str](), 0
    for number, (count, demand) in zip(range(1000), claims(chance), strict=False):
        while running and (chance.random() < 0.45 or len(running) > 300):
            ledger.release(running.pop(chance.randrange(len(running))))
        free = {name: idle(ledger, name) for name in of_node}
        request = pod(whole(count))
        outcome = finish(cache.ranking(request, constraints(demand)).place(request))
        if outcome is None:
            assert not any(acceptable(layouts[name], free[name], count, demand) for name in of_node)
            continue
        name = outcome.allocation.node
        chosen = tuple(cards_of(outcome))
        best = min(
            order.key(layouts[name], each, demand) for each in acceptable(layouts[name], free[name], count, demand)
        )
        assert set(chosen) <= set(free[name])
        assert order.key(layouts[name], chosen, demand) == best
        ledger.assume(f"pod-{number}", name, outcome.charges)
        running.append(f"pod-{number}")
        placed += 1
    assert placed > 700


def idle(ledger: Ledger, name: str) -> list[int]:
    """Return the indexes of the cards of a node that nothing uses; they are also their bits."""
    row = ledger.row(name)
    assert row is not None
    return [index for index, used in enumerate(ledger.used_lists(row)[2]) if not used]


def acceptable(layout: order.Layout, free: Sequence[int], count: int, demand: TopologyDemand) -> list[tuple[int, ...]]:
    """Return all sets of free cards that a demand accepts."""
    return [some for some in combinations(free, count) if order.is_acceptable(layout, some, demand)]
