"""A view of a ledger: which of its nodes are copies, and in which parts they come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from allocation.ledger import ledger_view
from allocation.ledger.ledger import Ledger
from allocation.steps import finish
from tests.allocation.placement.test_ranking_cache import World


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_parts_are_each_node_once_by_row(seed: int, most: int) -> None:
    """Each comes from the ledger that the view has it in, in parts that are full, and by row within that ledger."""
    world = World(seed)
    for _ in range(30):
        world.step()
    chance = random.Random(seed)  # noqa: S311 -- a test
    nodes = [*world.ledger.nodes, "elsewhere"]
    chance.shuffle(nodes)
    held = sorted(each.uid for each in world.ledger.reservations())
    seen = finish(ledger_view.view(world.ledger, without=chance.sample(held, chance.randint(0, len(held)))))
    given_by: dict[int, list[tuple[Ledger, list[str]]]] = {}
    for ledger, places in seen.parts(nodes, most=most):
        assert 0 < len(places) <= most
        given_by.setdefault(id(ledger), []).append((ledger, [nodes[place] for place in places.tolist()]))
    for parts in given_by.values():
        assert [len(names) for _, names in parts[:-1]] == [most] * (len(parts) - 1)
        names = [name for _, part in parts for name in part]
        assert all(seen.of(name) is parts[0][0] for name in names)
        rows = parts[0][0].rows(names).tolist()
        assert rows == sorted(rows)
    assert sorted(name for parts in given_by.values() for _, part in parts for name in part) == sorted(nodes)
