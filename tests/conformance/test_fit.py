"""2.1 to 2.3: who fits where, and where is best."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.constraints import read_constraints
from allocation.errors import OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.placement import NoPlacement, Placement, place
from allocation.quota import Room
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.score import card_scores, node_scores
from allocation.settings import AllocationSettings, Weights
from tests.allocation.builders import card, cards_of, container, fleet, mixed, pod, put, reasons

ONE = container(memory=100)
WHOLE = container(memory=100, cores=1000)


def charged(*containers: ContainerRequest) -> tuple[int, int, int]:
    """Answer MiB, millicards and slots that a pod holds of the only card."""
    outcome = put(fleet(cards=1), pod(*containers))
    assert isinstance(outcome, Placement)
    (charge,) = outcome.charges
    return charge.memory_mib, charge.cores, charge.slots


# ---- 2.1 the flow --------------------------------------------------------------------------------------------------


@pytest.mark.rule("2.1.1")
def test_a_pod_without_request_holds_nothing() -> None:
    """It asks for no card, so none is charged."""
    assert not pod(container(count=0))


@pytest.mark.rule("2.1.2", "2.1.3")
def test_init_steps_and_app_containers() -> None:
    """The larger of both, for as long as the pod lives: nothing in it depends on what has ended."""
    init, other = container("i", Kind.INIT, memory=700, cores=100), container("j", Kind.INIT, memory=100, cores=900)
    assert charged(init, other, container("a", memory=300), container("b", memory=200)) == (700, 900, 2)


@pytest.mark.rule("2.1.4")
def test_a_sidecar_stands_beside_what_follows() -> None:
    """HAMi takes it for an init container that ends."""
    side = container("side", Kind.SIDECAR, memory=300)
    assert charged(side, container("i", Kind.INIT, memory=400), container("main", memory=200)) == (700, 0, 2)
    assert charged(container("i", Kind.INIT, memory=400), side, container("main", memory=200)) == (500, 0, 2)


@pytest.mark.rule("2.1.5")
def test_a_terminating_pod_keeps_its_share() -> None:
    """It may run on until its grace is over."""
    from tests.scheduler import builders  # noqa: PLC0415 -- the only case that needs a scheduler

    state = builders.state("n1")
    running = builders.allocated("a", node="n1", memory=600)
    ending = builders.allocated("a", node="n1", memory=600, deleted="2026-01-01T00:00:00Z")
    state.set_pod(running)
    state.set_pod(ending, running)
    assert state.ledger.used[0].sum() == 600
    state.set_pod(builders.allocated("a", node="n1", memory=600, phase="Succeeded"), ending)
    assert state.ledger.used[0].sum() == 0


@pytest.mark.rule("2.1.6")
def test_the_same_room_is_not_given_twice() -> None:
    """What was decided on an older view is refused whole."""
    ledger, request = fleet(cards=1), pod(container(memory=50000))
    constraints = read_constraints({}, AllocationSettings())
    first, second = (place(ledger, request, ledger.nodes, constraints=constraints) for _ in range(2))
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    ledger.assume("a", "n0", first.charges)
    with pytest.raises(OverCapacityError):
        ledger.assume("b", "n0", second.charges)


# ---- 2.2 does a card fit? ------------------------------------------------------------------------------------------

TABLE: list[Any] = [
    # rule, the only card, what is on it, what is asked, the pod's annotations, room, the reason
    ("2.2.1", {"healthy": False}, None, ONE, {}, Room(), "CardNotHealth"),
    ("2.2.3", {"model": "NVIDIA L4"}, None, ONE, {"use_types": "A100"}, Room(), "CardTypeMismatch"),
    ("2.2.3", {"mode": "mps"}, None, ONE, {"mode": "hami-core"}, Room(), "CardTypeMismatch"),
    ("2.2.5", {}, None, ONE, {"avoid_uuids": "GPU-n0-0"}, Room(), "CardUuidMismatch"),
    ("2.2.6", {"slots": 1}, ONE, ONE, {}, Room(), "CardTimeSlicingExhausted"),
    ("2.2.7", {}, ONE, ONE, {"card_policy": "mutex"}, Room(), "ExclusiveDeviceAllocateConflict"),
    ("2.2.9", {}, None, ONE, {}, Room(memory_mib=99), "ResourceQuotaNotFit"),
    ("2.2.9", {}, None, container(memory=1, cores=10), {}, Room(cores=9), "ResourceQuotaNotFit"),
    ("2.2.10", {}, ONE, container(memory=901), {}, Room(), "CardInsufficientMemory"),
    ("2.2.8", {"memory_mib": 999}, container(memory=501), container(percent=50), {}, Room(), "CardInsufficientMemory"),
    ("2.2.11", {}, container(memory=1, cores=500), container(memory=1, cores=501), {}, Room(), "CardInsufficientCore"),
    ("2.2.12", {}, ONE, WHOLE, {}, Room(), "ExclusiveDeviceAllocateConflict"),
    ("2.2.13", {}, WHOLE, ONE, {}, Room(), "CardComputeUnitsExhausted"),
]


@pytest.mark.rule(*sorted({row[0] for row in TABLE}))
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[-1]}")
def test_a_card_says_why_not(row: Any) -> None:
    """And takes the pod where only that is otherwise, which the other rows show."""
    _, fields, before, asked, annotations, room, reason = row
    ledger = mixed(card(0, **fields))
    if before is not None:
        assert isinstance(put(ledger, pod(before)), Placement)
    assert reasons(put(ledger, pod(asked), room=room, **annotations)) == f"1/1 {reason}"


@pytest.mark.rule("2.2.8")
def test_a_percentage_rounds_down() -> None:
    """50 % of 999 MiB are 499, so what is left is enough."""
    ledger = mixed(card(0, memory_mib=999))
    put(ledger, pod(container(memory=500)))
    assert isinstance(put(ledger, pod(container(percent=50))), Placement)


@pytest.mark.rule("2.2.12", "2.2.13")
def test_scaled_cores_are_never_asked_whole() -> None:
    """The rule is for a card of exactly 100 %; one of 200 % takes two that ask 100."""
    ledger = mixed(card(0, cores=2000))
    assert isinstance(put(ledger, pod(WHOLE)), Placement)
    assert isinstance(put(ledger, pod(WHOLE)), Placement)
    assert reasons(put(ledger, pod(ONE))) == "1/1 CardComputeUnitsExhausted"


@pytest.mark.rule("2.2.2")
def test_a_cordoned_card() -> None:
    """Its pods stay, others go elsewhere."""
    ledger = mixed(card(0))
    put(ledger, pod(ONE))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert reasons(put(ledger, pod(ONE))) == "1/1 CardCordoned"
    assert ledger.used[0].sum() == 100


@pytest.mark.rule("2.2.0", "2.2.16")
def test_more_cards_than_there_are() -> None:
    """One container's cards are distinct, so no room on one card helps."""
    assert reasons(put(mixed(card(0)), pod(container(count=2, memory=1)))) == "NodeInsufficientDevice"


@pytest.mark.rule("2.2.16")
def test_containers_of_a_pod_may_share_a_card() -> None:
    """Each takes a slot."""
    outcome = put(mixed(card(0)), pod(container("a", memory=400), container("b", memory=500)))
    assert (cards_of(outcome, "a"), cards_of(outcome, "b")) == ([0], [0])


@pytest.mark.rule("2.2.4", "2.2.15")
def test_cards_that_fit_but_not_together() -> None:
    """By NUMA node, or because they are too few."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1, healthy=False))
    two = pod(container(count=2, memory=100))
    assert reasons(put(ledger, two, numa_bind="true")) == "1/3 CardNotHealth, 2/3 NumaNotFit"
    assert reasons(put(mixed(card(0), card(1, healthy=False)), two)) == (
        "1/2 AllocatedCardsInsufficientRequest, 1/2 CardNotHealth"
    )


@pytest.mark.rule("2.2.17")
@pytest.mark.parametrize(("count", "indexes"), [(1, [0]), (2, [2, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3])])
def test_topology(count: int, indexes: list[int]) -> None:
    """One leaves the good groups whole; several are the best linked."""
    links = {(0, 1): 10, (0, 2): 10, (0, 3): 10, (1, 2): 100, (1, 3): 100, (2, 3): 300}
    scores: dict[str, dict[str, int]] = {}
    for (one, other), score in links.items():
        scores.setdefault(f"GPU-n0-{one}", {})[f"GPU-n0-{other}"] = score
        scores.setdefault(f"GPU-n0-{other}", {})[f"GPU-n0-{one}"] = score
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", tuple(card(index) for index in range(4)), scores))
    assert cards_of(put(ledger, pod(container(count=count, memory=1)), card_policy="topology-aware")) == indexes


@pytest.mark.rule("2.2.18")
def test_the_first_failing_test_is_the_reason() -> None:
    """Everything is wrong with this card; mended one by one, the reasons come in order."""
    steps: list[tuple[dict[str, Any], dict[str, str], bool, str]] = [
        ({"healthy": False, "slots": 1}, {"use_types": "X", "use_uuids": "x"}, True, "CardNotHealth"),
        ({"slots": 1}, {"use_types": "X", "use_uuids": "x"}, True, "CardCordoned"),
        ({"slots": 1}, {"use_types": "X", "use_uuids": "x"}, False, "CardTypeMismatch"),
        ({"slots": 1}, {"use_uuids": "x", "card_policy": "mutex"}, False, "CardUuidMismatch"),
        ({"slots": 1}, {"card_policy": "mutex"}, False, "CardTimeSlicingExhausted"),
        ({}, {"card_policy": "mutex"}, False, "ExclusiveDeviceAllocateConflict"),
        ({}, {}, False, "ResourceQuotaNotFit"),
    ]
    for fields, annotations, cordoned, reason in steps:
        ledger = mixed(card(0, **{"memory_mib": 150, **fields, "healthy": True}))
        put(ledger, pod(WHOLE))
        ledger.set_node(NodeInventory("n0", (card(0, **{"memory_mib": 150, **fields}),)))
        if cordoned:
            ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
        outcome = put(ledger, pod(container(memory=100, cores=1000)), room=Room(memory_mib=1), **annotations)
        assert reasons(outcome) == f"1/1 {reason}"
    ledger = mixed(card(0, memory_mib=150))
    put(ledger, pod(WHOLE))
    assert reasons(put(ledger, pod(WHOLE))) == "1/1 CardInsufficientMemory"
    assert reasons(put(ledger, pod(container(memory=1, cores=1000)))) == "1/1 CardInsufficientCore"


cards = st.builds(
    Card,
    uuid=st.just(""),
    index=st.just(0),
    memory_mib=st.integers(0, 400),
    cores=st.sampled_from([0, 500, 1000, 2000]),
    slots=st.integers(0, 3),
    numa=st.integers(0, 1),
    healthy=st.booleans(),
)
asks = st.builds(
    container,
    name=st.just("main"),
    count=st.integers(1, 3),
    memory=st.integers(1, 300),
    cores=st.sampled_from([0, 300, 1000]),
)


@pytest.mark.rule("2.2.18", "2.5.3")
@given(st.lists(cards, min_size=1, max_size=6), st.lists(asks, min_size=1, max_size=8), st.booleans())
def test_reasons_sum_to_the_cards(found: list[Card], pods: list[ContainerRequest], bound: bool) -> None:  # noqa: FBT001
    """Every card has exactly one verdict, whatever is on it."""
    named = [msgspec.structs.replace(one, uuid=f"GPU-n0-{index}", index=index) for index, one in enumerate(found)]
    ledger = mixed(*named)
    for asked in pods:
        outcome = put(ledger, pod(asked), **({"numa_bind": "true"} if bound else {}))
        if isinstance(outcome, NoPlacement):
            rejection = outcome.rejections["n0"]
            assert rejection.node_reason or sum(rejection.counts.values()) == rejection.cards == len(found)
            assert CardReason.FITS not in rejection.counts


# ---- 2.3 which is better? ------------------------------------------------------------------------------------------


@pytest.mark.rule("2.3.1")
def test_a_cards_score() -> None:
    """Ten times slots, cores and memory as they would be, weighted; nothing where a capacity is 0."""
    total = np.array([[1000, 0], [1000, 1000], [10, 10]])
    used = np.array([[100, 0], [200, 0], [1, 0]])
    scores = card_scores(total, used, container(memory=100, cores=300), Weights(slot=1, core=2, memory=3))
    assert scores.tolist() == pytest.approx([10 * (1 * 0.2 + 2 * 0.5 + 3 * 0.2), 10 * (1 * 0.1 + 2 * 0.3)])


@pytest.mark.rule("2.3.2", "2.3.5")
def test_binpack_and_spread() -> None:
    """With the request in the score, a card that would be full beats one that is fuller now."""
    ledger = mixed(card(0), card(1), card(2, memory_mib=500))
    put(ledger, pod(container(memory=300)), use_uuids="GPU-n0-1")
    assert cards_of(put(ledger, pod(container(memory=450)), card_policy="binpack")) == [2]
    assert cards_of(put(mixed(card(0), card(1)), pod(ONE), card_policy="binpack")) == [0]
    ledger = mixed(card(0), card(1))
    assert [cards_of(put(ledger, pod(ONE))) for _ in range(3)] == [[0], [1], [0]]


@pytest.mark.rule("2.3.3")
@pytest.mark.parametrize(
    ("policy", "index"), [("numa", 1), ("numa,binpack", 2), ("mutex", 1), ("binpack,numa", 2), ("spread,numa", 1)]
)
def test_ordered_policies(policy: str, index: int) -> None:
    """Card 0 is on NUMA node 1 and shared, 1 idle and 2 shared on node 0."""
    ledger = mixed(card(0, numa=1), card(1), card(2))
    put(ledger, pod(container(memory=50)), use_uuids="GPU-n0-0")
    put(ledger, pod(container(memory=300)), use_uuids="GPU-n0-2")
    assert cards_of(put(ledger, pod(ONE), card_policy=policy)) == [index]


@pytest.mark.rule("2.3.4")
def test_a_nodes_score() -> None:
    """All cards of the node together, the request included."""
    total = np.array([[[1000, 1000]], [[1000, 1000]], [[10, 10]]])
    used = np.array([[[100, 0]], [[0, 0]], [[1, 0]]])
    scores = node_scores(total, used, pod(container(count=2, memory=100, cores=500)))
    assert scores.tolist() == pytest.approx([10 * (300 / 2000 + 1000 / 2000 + 3 / 20)])


@pytest.mark.rule("2.3.4", "2.3.5")
@pytest.mark.parametrize(("policy", "nodes"), [("", ["n0", "n0"]), ("binpack", ["n0", "n0"]), ("spread", ["n0", "n1"])])
def test_node_policies(policy: str, nodes: list[str]) -> None:
    """Equal nodes by name."""
    ledger = fleet(2)
    chosen = []
    for _ in range(2):
        outcome = put(ledger, pod(ONE), **({"node_policy": policy} if policy else {}))
        assert isinstance(outcome, Placement)
        chosen.append(outcome.allocation.node)
    assert chosen == nodes
    assert names.NODE_POLICY == "hami.io/node-scheduler-policy"
