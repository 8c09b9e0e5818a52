"""What must be made so that a pod fits: by HAMi's rule of choice, checked by the placement that will place it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.constraints import read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.mig import Slices
from allocation.mig_plan import NewInstance, Plan, plan
from allocation.quota import UNLIMITED, Room
from allocation.request import Kind, PodRequest
from allocation.settings import AllocationSettings
from tests.allocation.builders import KEYS, container, pod
from tests.allocation.mig_cards import divided, instance, shared


def ledger(*cards: Card, nodes: int = 1) -> Ledger:
    """Answer a ledger of n0, and of as many further nodes with one free card that an agent divides."""
    made = Ledger()
    made.set_node(NodeInventory("n0", cards))
    for index in range(1, nodes):
        made.set_node(NodeInventory(f"n{index}", (divided(0, node=f"n{index}", by="agent"),)))
    return made


def find(of: Ledger, request: PodRequest, *, room: Room = UNLIMITED, **more: Any) -> Plan | None:
    """Plan on all nodes; annotations by their short names, promised and barred as they are."""
    annotations = {KEYS[name]: value for name, value in more.items() if name in KEYS}
    constraints = read_constraints(annotations, AllocationSettings())
    return plan(
        of,
        request,
        of.nodes,
        constraints=constraints,
        room=room,
        promised=more.get("promised", {}),
        barred=more.get("barred", ()),
    )


def new(found: Plan | None) -> list[tuple[str, str, int]]:
    """Answer card, profile and start of what is to be made."""
    return [(each.card, each.profile, each.slices.start) for each in found.instances] if found is not None else []


AGENT = divided(0, by="agent")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pod(container(memory=100)), [("GPU-n0-0", "1g.5gb", 6)]),
        (pod(container(memory=5000)), [("GPU-n0-0", "2g.10gb", 0)]),
        (pod(container(memory=100, cores=300)), [("GPU-n0-0", "3g.20gb", 4)]),
        (pod(container(percent=50)), [("GPU-n0-0", "3g.20gb", 4)]),
        (pod(container(percent=100, cores=1000)), [("GPU-n0-0", "7g.40gb", 0)]),
        (pod(container(count=2, memory=100)), [("GPU-n0-0", "1g.5gb", 6), ("GPU-n0-0", "1g.5gb", 5)]),
        (
            pod(container("a", memory=100), container("b", memory=15000)),
            [("GPU-n0-0", "1g.5gb", 6), ("GPU-n0-0", "3g.20gb", 0)],
        ),
        (pod(container("i", Kind.INIT, memory=100), container("b", memory=200)), [("GPU-n0-0", "1g.5gb", 6)]),
        (pod(container(memory=99999)), []),
        (pod(container(count=3, memory=15000)), []),
    ],
)
def test_what_is_made_for_a_request(request_: PodRequest, expected: list[tuple[str, str, int]]) -> None:
    """The smallest profile that suits each container, placed by HAMi's rule; an init container's is used again."""
    assert new(find(ledger(AGENT), request_)) == expected


def test_what_is_there_and_free_is_used() -> None:
    """Only what lacks is made."""
    of = ledger(AGENT, instance(0, "1g.5gb", 6))
    assert new(find(of, pod(container(count=2, memory=100)))) == [("GPU-n0-0", "1g.5gb", 5)]


def test_places_that_are_promised_are_taken() -> None:
    """Two pods are never promised the same slices."""
    promised = {"GPU-n0-0": [Slices(6, 1), Slices(5, 1)]}
    assert new(find(ledger(AGENT), pod(container(memory=100)), promised=promised)) == [("GPU-n0-0", "1g.5gb", 4)]
    assert find(ledger(AGENT), pod(container(percent=100)), promised=promised) is None


@pytest.mark.parametrize(
    "more",
    [
        {"use_uuids": "GPU-n0-9"},
        {"avoid_uuids": "GPU-n0-0"},
        {"use_types": "H100"},
        {"mode": "hami-core"},
        {"room": Room(memory_mib=4000)},
        {"room": Room(memory_mib=4864, cards=0)},
        {"barred": {"GPU-n0-0"}},
    ],
)
def test_a_card_that_the_pod_may_not_have_makes_nothing(more: dict[str, Any]) -> None:
    """Every other test of a card comes first; the quota counts what would be charged."""
    assert find(ledger(AGENT), pod(container(memory=100)), **more) is None
    assert find(ledger(AGENT), pod(container(memory=100))) is not None


@pytest.mark.parametrize(
    "card",
    [divided(0), divided(0, by="plugin"), divided(0, healthy=False, by="agent"), shared(0)],
)
def test_who_makes_no_instances_is_not_asked(card: Card) -> None:
    """An administrator's card, HAMi's, an ill one, one that is not in MIG mode."""
    assert find(ledger(card), pod(container(memory=100))) is None


def test_a_cordoned_card_is_not_asked() -> None:
    """It takes no new pods."""
    of = ledger(AGENT)
    of.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert find(of, pod(container(memory=100))) is None


def test_the_next_node_is_asked_where_the_first_cannot() -> None:
    """By the order of the node policy."""
    found = find(ledger(divided(0), nodes=3), pod(container(memory=100)))
    assert found == Plan("n1", (NewInstance("GPU-n1-0", "1g.5gb", Slices(6, 1)),))


@given(st.lists(st.tuples(st.integers(1, 45000), st.integers(1, 3)), max_size=6))
def test_promises_never_overlap(asks: list[tuple[int, int]]) -> None:
    """Whatever is asked in whatever order: each slice of each card is promised once."""
    of = ledger(AGENT, divided(1, by="agent"), instance(0, "2g.10gb", 2))
    promised: dict[str, list[Slices]] = {"GPU-n0-0": [Slices(2, 2)], "GPU-n0-1": []}
    of.record("other", "n0", ())
    for memory, count in asks:
        found = find(of, pod(container(count=count, memory=memory)), promised=promised)
        for each in found.instances if found is not None else ():
            assert not any(each.slices.overlaps(other) for other in promised[each.card])
            promised[each.card].append(each.slices)
