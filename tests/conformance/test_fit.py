"""2.1 to 2.3: charges, filter and score."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.constraints import read_constraints
from allocation.errors import OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import NoPlacement, Placement, place
from allocation.placement.query import PlacementQuery
from allocation.placement.score import card_scores, node_scores
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.settings import AllocationSettings, Weights
from allocation.steps import finish
from allocation.topology.layout import of_scores
from tests.allocation.support.builders import card, cards_of, container, fleet, mixed, pod, put, reasons

ONE = container(memory=100)
WHOLE = container(memory=100, cores=1000)


def charged(*containers: ContainerRequest) -> tuple[int, int, int]:
    """Return MiB, millicards and slots that a pod holds of the only card."""
    outcome = put(fleet(cards=1), pod(*containers))
    assert isinstance(outcome, Placement)
    (charge,) = outcome.charges
    return charge.memory_mib, charge.cores, charge.slots


# ---- 2.1 charges ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("2.1.1")
def test_a_pod_without_request_holds_nothing() -> None:
    """It requests no card, so no card is charged."""
    assert not pod(container(count=0))


@pytest.mark.rule("2.1.2", "2.1.3")
def test_a_pod_is_charged_the_larger_of_init_and_app_containers() -> None:
    """The charge stays as long as the pod lives, whichever containers have ended."""
    init, other = container("i", Kind.INIT, memory=700, cores=100), container("j", Kind.INIT, memory=100, cores=900)
    assert charged(init, other, container("a", memory=300), container("b", memory=200)) == (700, 900, 2)


@pytest.mark.rule("2.1.4")
def test_a_sidecar_adds_up_with_all_later_containers() -> None:
    """HAMi treats it as an init container that ends."""
    side = container("side", Kind.SIDECAR, memory=300)
    assert charged(side, container("i", Kind.INIT, memory=400), container("main", memory=200)) == (700, 0, 2)
    assert charged(container("i", Kind.INIT, memory=400), side, container("main", memory=200)) == (500, 0, 2)


@pytest.mark.rule("2.1.5")
def test_a_terminating_pod_keeps_its_share() -> None:
    """It can run on until its grace period ends."""
    from tests.scheduler.support import builders  # noqa: PLC0415 -- the only test that needs a scheduler

    state = builders.state("n1")
    running = builders.allocated("a", node="n1", memory=600)
    ending = builders.allocated("a", node="n1", memory=600, deleted="2026-01-01T00:00:00Z")
    state.set_pod(running)
    state.set_pod(ending, running)
    assert state.ledger.used[0].sum() == 600
    state.set_pod(builders.allocated("a", node="n1", memory=600, phase="Succeeded"), ending)
    assert state.ledger.used[0].sum() == 0


@pytest.mark.rule("2.1.6")
def test_the_same_capacity_is_not_reserved_twice() -> None:
    """A decision on an outdated state is refused as a whole."""
    ledger, request = fleet(cards=1), pod(container(memory=50000))
    constraints = read_constraints({}, AllocationSettings())
    first, second = (
        finish(place(LedgerView(ledger), PlacementQuery(request, constraints), ledger.nodes)) for _ in range(2)
    )
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    ledger.assume("a", "n0", first.charges)
    with pytest.raises(OverCapacityError):
        ledger.assume("b", "n0", second.charges)


# ---- 2.2 filter ----------------------------------------------------------------------------------------------------

TABLE: list[Any] = [
    # rule, the only card, what is on it, the request, the pod's annotations, the headroom, the reason
    ("2.2.1", {"healthy": False}, None, ONE, {}, Headroom(), "CardNotHealth"),
    ("2.2.3", {"model": "NVIDIA L4"}, None, ONE, {"use_types": "A100"}, Headroom(), "CardTypeMismatch"),
    ("2.2.3", {"mode": "mps"}, None, ONE, {"mode": "hami-core"}, Headroom(), "CardTypeMismatch"),
    ("2.2.5", {}, None, ONE, {"avoid_uuids": "GPU-n0-0"}, Headroom(), "CardUuidMismatch"),
    ("2.2.6", {"slots": 1}, ONE, ONE, {}, Headroom(), "CardTimeSlicingExhausted"),
    ("2.2.7", {}, ONE, ONE, {"card_policy": "mutex"}, Headroom(), "ExclusiveDeviceAllocateConflict"),
    ("2.2.9", {}, None, ONE, {}, Headroom(memory_mib=99), "ResourceQuotaNotFit"),
    ("2.2.9", {}, None, container(memory=1, cores=10), {}, Headroom(cores=9), "ResourceQuotaNotFit"),
    ("2.2.10", {}, ONE, container(memory=901), {}, Headroom(), "CardInsufficientMemory"),
    (
        "2.2.8",
        {"memory_mib": 999},
        container(memory=501),
        container(percent=50),
        {},
        Headroom(),
        "CardInsufficientMemory",
    ),
    (
        "2.2.11",
        {},
        container(memory=1, cores=500),
        container(memory=1, cores=501),
        {},
        Headroom(),
        "CardInsufficientCore",
    ),
    ("2.2.12", {}, ONE, WHOLE, {}, Headroom(), "ExclusiveDeviceAllocateConflict"),
    ("2.2.13", {}, WHOLE, ONE, {}, Headroom(), "CardComputeUnitsExhausted"),
]


@pytest.mark.rule(*sorted({row[0] for row in TABLE}))
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[-1]}")
def test_a_rejected_card_has_its_reason(row: Any) -> None:
    """Each row fails one test only, as the other rows show."""
    _, fields, before, request, annotations, headroom, reason = row
    ledger = mixed(card(0, **fields))
    if before is not None:
        assert isinstance(put(ledger, pod(before)), Placement)
    assert reasons(put(ledger, pod(request), headroom=headroom, **annotations)) == f"1/1 {reason}"


@pytest.mark.rule("2.2.8")
def test_a_percentage_rounds_down() -> None:
    """50 % of 999 MiB are 499 MiB, which are left."""
    ledger = mixed(card(0, memory_mib=999))
    put(ledger, pod(container(memory=500)))
    assert isinstance(put(ledger, pod(container(percent=50))), Placement)


@pytest.mark.rule("2.2.12", "2.2.13")
def test_a_card_with_scaled_cores_is_never_exclusive() -> None:
    """The rule is for cards of exactly 100 %; a card of 200 % takes two pods that request 100."""
    ledger = mixed(card(0, cores=2000))
    assert isinstance(put(ledger, pod(WHOLE)), Placement)
    assert isinstance(put(ledger, pod(WHOLE)), Placement)
    assert reasons(put(ledger, pod(ONE))) == "1/1 CardComputeUnitsExhausted"


@pytest.mark.rule("2.2.2")
def test_a_cordoned_card_takes_no_new_pods() -> None:
    """Its pods stay."""
    ledger = mixed(card(0))
    put(ledger, pod(ONE))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert reasons(put(ledger, pod(ONE))) == "1/1 CardCordoned"
    assert ledger.used[0].sum() == 100


@pytest.mark.rule("2.2.0", "2.2.16")
def test_a_node_with_too_few_cards_is_rejected_as_a_whole() -> None:
    """The cards of one container are distinct, so free capacity on one card does not help."""
    assert reasons(put(mixed(card(0)), pod(container(count=2, memory=1)))) == "NodeInsufficientDevice"


@pytest.mark.rule("2.2.16")
def test_containers_of_a_pod_may_share_a_card() -> None:
    """Each container takes a slot."""
    outcome = put(mixed(card(0)), pod(container("a", memory=400), container("b", memory=500)))
    assert (cards_of(outcome, "a"), cards_of(outcome, "b")) == ([0], [0])


@pytest.mark.rule("2.2.4", "2.2.15")
def test_cards_that_fit_only_alone_have_a_reason() -> None:
    """They are on different NUMA nodes, or too few."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1, healthy=False))
    two = pod(container(count=2, memory=100))
    assert reasons(put(ledger, two, numa_bind="true")) == "1/3 CardNotHealth, 2/3 NumaNotFit"
    assert reasons(put(mixed(card(0), card(1, healthy=False)), two)) == (
        "1/2 AllocatedCardsInsufficientRequest, 1/2 CardNotHealth"
    )


@pytest.mark.rule("2.2.17")
@pytest.mark.parametrize(("count", "indexes"), [(1, [0]), (2, [2, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3])])
def test_topology_aware_selection(count: int, indexes: list[int]) -> None:
    """A single card leaves well-linked groups whole; several cards are the best linked."""
    links = {(0, 1): 10, (0, 2): 10, (0, 3): 10, (1, 2): 100, (1, 3): 100, (2, 3): 300}
    scores: dict[str, dict[str, int]] = {}
    for (one, other), score in links.items():
        scores.setdefault(f"GPU-n0-{one}", {})[f"GPU-n0-{other}"] = score
        scores.setdefault(f"GPU-n0-{other}", {})[f"GPU-n0-{one}"] = score
    ledger = Ledger()
    made = tuple(card(index) for index in range(4))
    layout = of_scores([(each.uuid, each.index, each.numa) for each in made], scores)
    ledger.set_node(NodeInventory("n0", made, layout))
    assert cards_of(put(ledger, pod(container(count=count, memory=1)), card_policy="topology-aware")) == indexes


@pytest.mark.rule("2.2.18")
def test_the_first_failing_test_is_the_reason() -> None:
    """The card fails all tests; with one failure removed at a time, the reasons follow in order."""
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
        outcome = put(ledger, pod(container(memory=100, cores=1000)), headroom=Headroom(memory_mib=1), **annotations)
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
    tflops=st.sampled_from([0, 65, 312]),
)
requests = st.builds(
    container,
    name=st.just("main"),
    count=st.integers(1, 3),
    memory=st.integers(1, 300),
    cores=st.sampled_from([0, 300, 1000]),
    tflops=st.sampled_from([0, 0, 20, 312]),
)


@pytest.mark.rule("2.2.18", "2.5.3")
@given(st.lists(cards, min_size=1, max_size=6), st.lists(requests, min_size=1, max_size=8), st.booleans())
def test_reasons_sum_to_the_cards(drawn: list[Card], pods: list[ContainerRequest], bound: bool) -> None:  # noqa: FBT001
    """Every card has exactly one reason, whatever is on it."""
    named = [msgspec.structs.replace(one, uuid=f"GPU-n0-{index}", index=index) for index, one in enumerate(drawn)]
    ledger = mixed(*named)
    for request in pods:
        outcome = put(ledger, pod(request), **({"numa_bind": "true"} if bound else {}))
        if isinstance(outcome, NoPlacement):
            rejection = outcome.rejections["n0"]
            assert rejection.node is not None or sum(rejection.counts.values()) == rejection.cards == len(drawn)
            assert CardReason.FITS not in rejection.counts


# ---- 2.3 score -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("2.3.1")
def test_the_score_of_a_card() -> None:
    """It is ten times the weighted fullness with the request; a capacity of 0 counts as empty."""
    total = [[1000, 0], [1000, 1000], [10, 10], [0, 0]]
    used = [[100, 0], [200, 0], [1, 0], [0, 0]]
    scores = card_scores(
        (0, 1),
        total=total,
        used=used,
        request=container(memory=100, cores=300),
        weights=Weights(slot=1, core=2, memory=3),
    )
    assert list(scores.values()) == pytest.approx([10 * (1 * 0.2 + 2 * 0.5 + 3 * 0.2), 10 * (1 * 0.1 + 2 * 0.3)])


@pytest.mark.rule("2.3.2", "2.3.5")
def test_binpack_and_spread_compare_cards_with_the_request_included() -> None:
    """A card that would be full is preferred to one that is fuller now; ties are broken by free memory and index."""
    ledger = mixed(card(0), card(1), card(2, memory_mib=500))
    put(ledger, pod(container(memory=300)), use_uuids="GPU-n0-1")
    assert cards_of(put(ledger, pod(container(memory=450)), card_policy="binpack")) == [2]
    assert cards_of(put(mixed(card(0), card(1)), pod(ONE), card_policy="binpack")) == [0]
    ledger = mixed(card(0), card(1))
    assert [cards_of(put(ledger, pod(ONE), card_policy="spread")) for _ in range(3)] == [[0], [1], [0]]
    ledger = mixed(card(0), card(1))
    assert [cards_of(put(ledger, pod(ONE))) for _ in range(2)] == [[0], [0]]


@pytest.mark.rule("2.3.3")
@pytest.mark.parametrize(
    ("policy", "index"), [("numa", 1), ("numa,binpack", 2), ("mutex", 1), ("binpack,numa", 2), ("spread,numa", 1)]
)
def test_card_policies_apply_in_order(policy: str, index: int) -> None:
    """Card 0 is in use, on NUMA node 1; cards 1 (idle) and 2 (in use) are on NUMA node 0."""
    ledger = mixed(card(0, numa=1), card(1), card(2))
    put(ledger, pod(container(memory=50)), use_uuids="GPU-n0-0")
    put(ledger, pod(container(memory=300)), use_uuids="GPU-n0-2")
    assert cards_of(put(ledger, pod(ONE), card_policy=policy)) == [index]


@pytest.mark.rule("2.3.4")
def test_the_score_of_a_node() -> None:
    """It is the fullness of all cards of the node together, with the request included."""
    ledger = mixed(card(0), card(1))
    put(ledger, pod(container(memory=100)))
    scores = node_scores(ledger, (container(count=2, memory=100, cores=500),))
    assert scores[ledger.row("n0")] == pytest.approx(10 * (300 / 2000 + 1000 / 2000 + 3 / 20))


@pytest.mark.rule("2.3.4", "2.3.5")
@pytest.mark.parametrize(("policy", "nodes"), [("", ["n0", "n0"]), ("binpack", ["n0", "n0"]), ("spread", ["n0", "n1"])])
def test_the_node_policy_chooses_the_fullest_or_emptiest_node(policy: str, nodes: list[str]) -> None:
    """Binpack is the default; equal nodes are ordered by name."""
    ledger = fleet(2)
    chosen = []
    for _ in range(2):
        outcome = put(ledger, pod(ONE), **({"node_policy": policy} if policy else {}))
        assert isinstance(outcome, Placement)
        chosen.append(outcome.allocation.node)
    assert chosen == nodes
    assert names.NODE_POLICY == "hami.io/node-scheduler-policy"
