"""Numbers of shared values: equal values share one, and forgotten values give theirs back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.errors import AllocationError
from allocation.fabric import Fabric, Hca
from allocation.interned import Interned
from allocation.inventory import MOST_UNDIVIDED, Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import CardLinks, of_links

IDLE = 65


@given(st.integers(0, 2**32), st.integers(1, 400))
def test_a_number_means_its_value_as_long_as_it_is_in_use(seed: int, steps: int) -> None:
    """Whatever is acquired and released, no more values are kept than are in use, and a few idle ones."""
    chance = random.Random(seed)  # noqa: S311 -- a test
    interned: Interned[int] = Interned()
    in_use: dict[int, int] = {}
    held: list[int] = []
    most = 0
    for _ in range(steps):
        if held and chance.random() < 0.45:
            number = held.pop(chance.randrange(len(held)))
            interned.release(number)
            if number not in held:
                del in_use[number]
        else:
            value = chance.randrange(150)
            number = interned.acquire(value)
            assert in_use.setdefault(number, value) == value
            held.append(number)
        assert all(interned.values[number] == value for number, value in in_use.items())
        most = max(most, len(in_use))
    assert len(interned.values) <= most + IDLE


def test_an_agent_that_reports_something_else_each_time_takes_no_more_memory() -> None:
    """Layouts, their tables, and fabrics are forgotten with the nodes that had them."""
    ledger, demand = Ledger(), TopologyDemand()
    for number in range(300):
        links = of_links(tuple(CardLinks(bit, 0, "a", number) for bit in range(4)))
        cards = tuple(Card(f"GPU-{bit}", bit, 1000) for bit in range(4))
        ledger.set_node(NodeInventory("n", cards, links, Fabric((Hca(f"mlx5_{number}"),))))
        layout = ledger.layouts.item(ledger.row("n") or 0)
        assert ledger.topology.layouts[layout] is links
        assert ledger.topology.worth(layout, 0b1111, 2, demand) % (1 << 21) == number
    assert len(ledger.topology.layouts) <= 1 + IDLE
    assert len(ledger.platform_kinds.values) <= 1 + IDLE
    assert ledger.topology.nbytes < 1 << 20


def test_a_node_with_more_cards_than_any_machine_is_refused() -> None:
    """Every pair of its cards would be evaluated; MIG instances are not linked, and do not count."""
    ledger = Ledger()
    cards = tuple(Card(f"GPU-{index}", index, 1000) for index in range(MOST_UNDIVIDED + 1))
    ledger.set_node(NodeInventory("n", cards[1:]))
    with pytest.raises(AllocationError, match="node n reports more than 128 cards, which is the limit"):
        ledger.set_node(NodeInventory("n", cards))
    assert len(ledger.inventory("n").cards) == MOST_UNDIVIDED  # type: ignore[union-attr]
