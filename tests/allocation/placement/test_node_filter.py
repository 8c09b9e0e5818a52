"""Nodes that are filtered together get the results that each gets alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.constraints import read_constraints
from allocation.ledger import ledger_view
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import node_filter
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.node_filter import rank_nodes
from allocation.placement.placement import Placement, place, scores_of, values_of
from allocation.placement.query import PlacementQuery
from allocation.reasons import NodeReason
from allocation.settings import AllocationSettings
from allocation.steps import finish
from tests.allocation.placement.test_ranking_cache import HEADROOMS, REQUESTS, World, constraints
from tests.allocation.support.builders import container, pod

DEFAULTS = AllocationSettings()


def drawn(seed: int) -> tuple[random.Random, Ledger, PlacementQuery]:
    """Return a ledger with a random history and a random query, with the generator that drew them."""
    world = World(seed)
    for _ in range(30):
        world.step()
    chance = random.Random(seed)  # noqa: S311 -- a test
    request, headroom = chance.choice(REQUESTS), chance.choice(HEADROOMS)
    return chance, world.ledger, PlacementQuery(request, constraints(chance), headroom)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_ranking_together_equals_ranking_alone(seed: int) -> None:
    """Scores are equal to the last bit, and rejections are equal, whichever nodes are ranked together."""
    chance, ledger, query = drawn(seed)
    nodes = [*ledger.nodes, "elsewhere"]
    alone = [finish(rank_nodes(LedgerView(ledger), query, [node])) for node in nodes]
    requested = chance.sample(nodes, chance.randint(0, len(nodes)))
    for some in (nodes, requested):
        together = finish(rank_nodes(LedgerView(ledger), query, some))
        expected = [alone[nodes.index(node)] for node in some]
        assert together.scores == {name: score for each in expected for name, score in each.scores.items()}
        assert together.rejections == {name: why for each in expected for name, why in each.rejections.items()}
        names = [*together.scores]
        values = values_of(names, together.scores, together.values, policy=query.constraints.node_policy).tolist()
        assert [*zip(values, names, strict=True)] == sorted(
            zip(values, names, strict=True), key=lambda s: (-s[0], s[1])
        )


@given(st.integers(0, 2**32))
def test_scores_agree_with_placement(seed: int) -> None:
    """`scores_of` has the scores and rejections of `place`, although it selects no cards if it need not."""
    chance, ledger, query = drawn(seed)
    nodes = [*ledger.nodes, "elsewhere"]
    requested = chance.sample(nodes, chance.randint(0, len(nodes)))
    chosen = finish(place(LedgerView(ledger), query, requested))
    values, rejections = finish(scores_of(LedgerView(ledger), query, requested))
    fits = [name for name, value in zip(requested, values.tolist(), strict=True) if value != INFEASIBLE]
    assert fits == [name for name in requested if isinstance(chosen, Placement) and name in chosen.scores]
    assert rejections == chosen.rejections
    if isinstance(chosen, Placement):
        expected = values_of(requested, chosen.scores, chosen.values, policy=query.constraints.node_policy)
        assert values.tolist() == expected.tolist()


def test_an_unknown_node_is_unregistered() -> None:
    """That is true in an empty ledger as well."""
    query = PlacementQuery(pod(container(memory=1)), read_constraints({}, DEFAULTS))
    ranked = finish(rank_nodes(LedgerView(Ledger()), query, ["ghost"]))
    assert ranked.scores == {}
    assert str(ranked.rejections["ghost"]) == NodeReason.NodeUnregistered


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_view_without_reservations_equals_their_release(seed: int) -> None:
    """Nodes are ranked, rejected and given as if the reservations were really gone; the ledger stays as it is."""
    chance, ledger, query = drawn(seed)
    nodes, held = [*ledger.nodes], sorted(each.uid for each in ledger.reservations())
    without = frozenset(chance.sample(held, chance.randint(0, len(held))))
    before = ledger.used.tobytes(), ledger.fullness.tobytes(), ledger.changes.state, [*ledger.reservations()]
    seen = finish(ledger_view.view(ledger, without=without))
    ranked, placed = finish(rank_nodes(seen, query, nodes)), finish(place(seen, query, nodes))
    values = finish(scores_of(seen, query, nodes))[0].tolist()
    assert before == (ledger.used.tobytes(), ledger.fullness.tobytes(), ledger.changes.state, [*ledger.reservations()])
    for uid in without:
        ledger.release(uid)
    real = LedgerView(ledger)
    assert ranked == finish(rank_nodes(real, query, nodes))
    assert placed == finish(place(real, query, nodes))
    assert values == finish(scores_of(real, query, nodes))[0].tolist()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_the_parts_give_what_the_whole_gives(seed: int, most: int) -> None:
    """However many nodes are filtered in one step."""
    _, ledger, query = drawn(seed)
    nodes = [*ledger.nodes, "elsewhere"]
    whole = finish(rank_nodes(LedgerView(ledger), query, nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_filter, "_STEP", most)
        steps = rank_nodes(LedgerView(ledger), query, nodes)
        assert sum(1 for _ in steps) >= (len(nodes) - 1) // most
        assert finish(rank_nodes(LedgerView(ledger), query, nodes)) == whole
