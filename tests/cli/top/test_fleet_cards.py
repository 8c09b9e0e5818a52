"""`top` counts without the scheduler's ledger; the two agree about everything that `top` shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import TFLOPS
from allocation.ledger.ledger import Ledger
from allocation.mig import MODE, MigInstance
from cli.top.fleet_cards import FleetCards, use_of

NODES, CARDS = ("n1", "n2"), ("a", "b", "c")


@st.composite
def cards(draw: st.DrawFn) -> tuple[Card, ...]:
    """Draw cards, some in MIG mode with instances; names repeat, also among nodes."""
    drawn: list[Card] = []
    for name in draw(st.lists(st.sampled_from(CARDS), max_size=3)):
        mode = draw(st.sampled_from(("hami-core", MODE)))
        drawn.append(Card(uuid=name, index=len(drawn), memory_mib=40000, mode=mode))
        if mode == MODE:
            for number in range(draw(st.integers(0, 2))):
                uuid = f"{name}-{number}"
                instance = MigInstance(parent=name, profile="1g.5gb")
                drawn.append(Card(uuid=uuid, index=0, memory_mib=5000, cores=142, slots=1, instance=instance))
    return tuple(drawn)


def charge(uuid: str) -> st.SearchStrategy[Charge]:
    """Draw a charge of a card or an instance, whose card is charged, too, if the pod was given the instance."""
    parent = uuid.partition("-")[0] if "-" in uuid else ""
    return st.builds(
        Charge,
        st.just(uuid),
        memory_mib=st.integers(0, 9000),
        cores=st.integers(0, 300),
        slots=st.integers(0, 2),
        parent=st.sampled_from(("", parent)),
        whole=st.booleans(),
    )


uuids = st.sampled_from([*CARDS, *(f"{card}-{number}" for card in CARDS for number in range(2))])


@given(
    st.lists(st.tuples(st.sampled_from(NODES), st.none() | cards()), max_size=6),
    st.lists(st.tuples(st.sampled_from(NODES), st.lists(uuids.flatmap(charge), max_size=3)), max_size=4),
)
def test_top_counts_as_the_ledger_does(
    reports: list[tuple[str, tuple[Card, ...] | None]], pods: list[tuple[str, list[Charge]]]
) -> None:
    """The same reports are refused with the same words, and each card has the same use."""
    fleet, ledger = FleetCards(), Ledger()
    for node, reported in reports:
        refusals = []
        for book in (fleet, ledger):
            if reported is None:
                book.drop_node(node)
                continue
            try:
                book.set_node(NodeInventory(node, reported))
            except AllocationError as error:
                refusals.append(str(error))
        assert len(refusals) in (0, 2)
        assert len(set(refusals)) <= 1
    for number, (node, held) in enumerate(pods):
        ledger.record(str(number), node, held)
    assert sorted(fleet.nodes) == sorted(ledger.nodes)
    for node in fleet.nodes:
        inventory, row = fleet.inventory(node), ledger.row(node)
        assert inventory is not None
        use = use_of(inventory, [each for name, held in pods if name == node for each in held])
        counted = {card.uuid: ledger.used[:TFLOPS, row, at].tolist() for at, card in enumerate(inventory.cards)}
        assert use == counted


def test_a_card_belongs_to_one_node() -> None:
    """The error names both nodes."""
    fleet = FleetCards()
    fleet.set_node(NodeInventory("n1", (Card(uuid="a", index=0, memory_mib=1),)))
    with pytest.raises(AllocationError, match="node n2 reports card a, which node n1 has already reported"):
        fleet.set_node(NodeInventory("n2", (Card(uuid="a", index=0, memory_mib=1),)))
