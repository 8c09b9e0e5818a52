"""The plan creates instances by HAMi's rule, and only such that the placement will use."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.constraints import CardKind, read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.mig import Slices
from allocation.placement.mig_plan import NewInstance, Plan, plan
from allocation.quota import UNLIMITED, Headroom
from allocation.request import Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.steps import finish
from tests.allocation.support.builders import KEYS, container, pod
from tests.allocation.support.mig_cards import instance, mig_card, shared


def ledger(*cards: Card, nodes: int = 1) -> Ledger:
    """Return a ledger of n0 with `cards`, and of further nodes with one empty card whose instances an agent creates."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", cards))
    for index in range(1, nodes):
        ledger.set_node(NodeInventory(f"n{index}", (mig_card(0, node=f"n{index}", by="agent"),)))
    return ledger


def find(
    of: Ledger,
    request: PodRequest,
    *,
    headroom: Headroom = UNLIMITED,
    kind: CardKind = "any",
    profile: str = "",
    **more: Any,
) -> Plan | None:
    """Plan on all nodes; `more` are annotations by their short names, and arguments of `plan`."""
    annotations = {KEYS[name]: value for name, value in more.items() if name in KEYS}
    constraints = read_constraints(annotations, AllocationSettings())
    planned = plan(
        of,
        request,
        of.nodes,
        constraints=msgspec.structs.replace(constraints, card_kind=kind, profile=profile),
        headroom=headroom,
        requested=more.get("requested", {}),
        cooling_down=more.get("cooling_down", ()),
    )
    return finish(planned)


def new(found: Plan | None) -> list[tuple[str, str, int]]:
    """Return card, profile and first slice of each instance to create."""
    return [(each.card, each.profile, each.slices.start) for each in found.instances] if found is not None else []


AGENT = mig_card(0, by="agent")


def test_nothing_is_planned_on_a_node_that_takes_the_pod_by_now() -> None:
    """What the pod was rejected for may have changed since, so there is nothing to wait for."""
    assert find(ledger(AGENT, instance(0, "1g.5gb", 0)), pod(container(memory=100))) is None


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
def test_the_smallest_suitable_instances_are_created(
    request_: PodRequest, expected: list[tuple[str, str, int]]
) -> None:
    """Each container gets the smallest profile, placed by HAMi's rule; an init container's instance is reused."""
    assert new(find(ledger(AGENT), request_)) == expected


def test_free_instances_are_used_first() -> None:
    """Only missing instances are created."""
    of = ledger(AGENT, instance(0, "1g.5gb", 6))
    assert new(find(of, pod(container(count=2, memory=100)))) == [("GPU-n0-0", "1g.5gb", 5)]


def test_promised_slices_are_not_used() -> None:
    """Two pods are never promised the same slices."""
    requested = {"GPU-n0-0": [Slices(6, 1), Slices(5, 1)]}
    assert new(find(ledger(AGENT), pod(container(memory=100)), requested=requested)) == [("GPU-n0-0", "1g.5gb", 4)]
    assert find(ledger(AGENT), pod(container(percent=100)), requested=requested) is None


@pytest.mark.parametrize(
    "more",
    [
        {"use_uuids": "GPU-n0-9"},
        {"avoid_uuids": "GPU-n0-0"},
        {"use_types": "H100"},
        {"mode": "hami-core"},
        {"headroom": Headroom(memory_mib=4000)},
        {"headroom": Headroom(memory_mib=4864, cards=0)},
        {"cooling_down": {"GPU-n0-0"}},
    ],
)
def test_no_instance_is_created_on_a_card_that_the_pod_cannot_use(more: dict[str, Any]) -> None:
    """All other tests of a card come first; the quota counts what would be charged."""
    assert find(ledger(AGENT), pod(container(memory=100)), **more) is None
    assert find(ledger(AGENT), pod(container(memory=100))) is not None


@pytest.mark.parametrize(
    "card",
    [mig_card(0), mig_card(0, by="plugin"), mig_card(0, healthy=False, by="agent"), shared(0)],
)
def test_instances_are_created_only_where_an_agent_creates_them(card: Card) -> None:
    """Not on cards of an administrator or of HAMi's plugin, unhealthy cards, or cards that are not in MIG mode."""
    assert find(ledger(card), pod(container(memory=100))) is None


def test_no_instance_is_created_on_a_cordoned_card() -> None:
    """A cordoned card takes no new pods."""
    of = ledger(AGENT)
    of.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert find(of, pod(container(memory=100))) is None


def test_the_next_node_is_used_if_the_first_cannot_create_instances() -> None:
    """Nodes are tried in the order of the node policy."""
    found = find(ledger(mig_card(0), nodes=3), pod(container(memory=100)))
    assert found == Plan("n1", (NewInstance("GPU-n1-0", "1g.5gb", Slices(6, 1)),))


def test_no_instance_is_created_for_a_claim_of_undivided_cards() -> None:
    """It could not get the instance."""
    assert find(ledger(AGENT), pod(container(memory=100)), kind="card") is None
    assert find(ledger(AGENT), pod(container(memory=100)), kind="instance") is not None


@pytest.mark.parametrize(
    ("profile", "memory", "expected"),
    [
        ("1g.5gb", 0, [("GPU-n0-0", "1g.5gb", 6)]),
        ("2g.10gb", 100, [("GPU-n0-0", "2g.10gb", 0)]),
        ("4g.20gb", 0, [("GPU-n0-0", "4g.20gb", 0)]),
        ("2g.10gb", 15000, []),
        ("2g.10g", 0, []),
    ],
)
def test_only_instances_of_the_claimed_profile_are_created(
    profile: str, memory: int, expected: list[tuple[str, str, int]]
) -> None:
    """Not the smallest suitable one, and none if the profile has too little memory or does not exist."""
    request = pod(container(memory=memory))
    assert new(find(ledger(AGENT), request, kind="instance", profile=profile)) == expected


def test_an_undivided_card_does_not_keep_a_claim_from_its_instances() -> None:
    """A plain pod would get the idle card; a claim of an instance does not, so an instance is created."""
    of = ledger(shared(1), AGENT)
    assert new(find(of, pod(container(memory=100)))) == []
    assert new(find(of, pod(container(memory=100)), kind="instance")) == [("GPU-n0-0", "1g.5gb", 6)]


@given(st.lists(st.tuples(st.integers(1, 45000), st.integers(1, 3)), max_size=6))
def test_planned_instances_never_overlap(requests: list[tuple[int, int]]) -> None:
    """Each slice of each card is promised at most once, for any requests in any order."""
    of = ledger(AGENT, mig_card(1, by="agent"), instance(0, "2g.10gb", 2))
    requested: dict[str, list[Slices]] = {"GPU-n0-0": [Slices(2, 2)], "GPU-n0-1": []}
    of.record("other", "n0", ())
    for memory, count in requests:
        found = find(of, pod(container(count=count, memory=memory)), requested=requested)
        for each in found.instances if found is not None else ():
            assert not any(each.slices.overlaps(other) for other in requested[each.card])
            requested[each.card].append(each.slices)


@pytest.mark.parametrize(
    ("tflops", "profile"), [(44, "1g.5gb"), (45, "2g.10gb"), (100, "3g.20gb"), (312, "7g.40gb"), (313, "")]
)
def test_an_instance_has_the_tflops_that_are_requested(tflops: int, profile: str) -> None:
    """A seventh of an A100 has 44.3, and none has more than the card."""
    fast = msgspec.structs.replace(AGENT, tflops=312)
    found = new(find(ledger(fast), pod(container(memory=100, tflops=tflops))))
    assert [name for _, name, _ in found] == ([profile] if profile else [])
    assert find(ledger(AGENT), pod(container(memory=100, tflops=tflops))) is None
