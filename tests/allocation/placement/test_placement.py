"""A pod is placed where it fits, by policy; where it does not fit, each card has a reason."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import charges
from allocation.constraints import read_constraints
from allocation.inventory import NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import NoPlacement, Placement, place
from allocation.placement.query import PlacementQuery
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.topology.layout import of_scores
from tests.allocation.support.builders import card, cards_of, container, fleet, mixed, pod, put, reasons


@pytest.mark.parametrize(
    ("request_", "fitting", "reason"),
    [
        (container(memory=3000), 80, "8/8 CardTimeSlicingExhausted"),
        (container(memory=30000), 16, "8/8 CardInsufficientMemory"),
        (container(memory=1, cores=600), 8, "8/8 CardInsufficientCore"),
        (container(percent=50), 16, "8/8 CardInsufficientMemory"),
        (container(percent=100, cores=1000), 8, "8/8 CardInsufficientMemory"),
        (container(memory=1, cores=1000), 8, "8/8 CardInsufficientCore"),
        (container(count=8, memory=30000), 2, "8/8 CardInsufficientMemory"),
    ],
)
def test_as_many_pods_fit_as_capacity_allows(request_: ContainerRequest, fitting: int, reason: str) -> None:
    """The pods on 8 cards of 81920 MiB are as many as the arithmetic allows; the next has a reason."""
    ledger = fleet()
    for _ in range(fitting):
        assert isinstance(put(ledger, pod(request_)), Placement)
    assert reasons(put(ledger, pod(request_))) == reason


def test_a_percentage_is_charged_in_mib() -> None:
    """50 % of 81920 MiB is 40960."""
    outcome = put(fleet(), pod(container(percent=50)))
    assert isinstance(outcome, Placement)
    assert outcome.charges[0].memory_mib == 40960


def test_a_pod_with_all_cores_shares_its_card_with_no_other() -> None:
    """It gets only an idle card, and no pod joins it, even without cores (HAMi's rules 2.2.12 and 2.2.13)."""
    ledger = fleet(cards=1)
    put(ledger, pod(container(memory=100)))
    assert reasons(put(ledger, pod(container(memory=100, cores=1000)))) == "1/1 ExclusiveDeviceAllocateConflict"
    ledger = fleet(cards=1)
    put(ledger, pod(container(memory=100, cores=1000)))
    assert reasons(put(ledger, pod(container(memory=100)))) == "1/1 CardComputeUnitsExhausted"


def test_an_unhealthy_card_takes_no_pod() -> None:
    """Health is tested before everything else."""
    assert reasons(put(fleet(healthy=False), pod(container(memory=999999)))) == "8/8 CardNotHealth"


def test_a_node_with_too_few_cards_is_unresolvable() -> None:
    """The node as a whole is too small, which no finished pod can change."""
    outcome = put(fleet(cards=2), pod(container(count=3, memory=1)))
    assert reasons(outcome) == "NodeInsufficientDevice"
    assert isinstance(outcome, NoPlacement)
    assert not outcome.rejections["n0"].resolvable


def test_fitting_cards_that_are_too_few_have_a_reason() -> None:
    """Each card has one reason; for the cards that fit it is that they are too few."""
    ledger = fleet(cards=3)
    put(ledger, pod(container(count=2, memory=80000)))
    outcome = put(ledger, pod(container(count=2, memory=80000)))
    assert reasons(outcome) == "1/3 AllocatedCardsInsufficientRequest, 2/3 CardInsufficientMemory"
    assert isinstance(outcome, NoPlacement)
    assert outcome.rejections["n0"].counts == {
        CardReason.CardInsufficientMemory: 2,
        CardReason.AllocatedCardsInsufficientRequest: 1,
    }


@pytest.mark.parametrize(("policy", "same"), [("binpack", True), ("spread", False)])
def test_the_card_policy_decides_whether_pods_share_a_card(policy: str, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    """Two pods of 20 % share a card under binpack and not under spread."""
    ledger = fleet()
    first = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    second = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    assert (first == second) is same


@pytest.mark.parametrize(("policy", "same"), [("binpack", True), ("spread", False)])
def test_the_node_policy_decides_whether_pods_share_a_node(policy: str, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    """Two pods share a node under binpack and not under spread."""
    ledger = fleet(2)
    chosen = [put(ledger, pod(container(memory=100)), node_policy=policy) for _ in range(2)]
    nodes = [outcome.allocation.node for outcome in chosen if isinstance(outcome, Placement)]
    assert (nodes[0] == nodes[1]) is same


def test_ties_are_broken_by_name_and_index() -> None:
    """Of equal nodes the first by name is chosen, of equal cards the first by index."""
    outcome = put(fleet(3), pod(container(count=2, memory=1)))
    assert isinstance(outcome, Placement)
    assert outcome.allocation.node == "n0"
    assert cards_of(outcome) == [0, 1]


def test_one_container_never_gets_a_card_twice() -> None:
    """Two GPUs are two cards, however much one card has free."""
    outcome = put(fleet(cards=1), pod(container(count=2, memory=1)))
    assert reasons(outcome) == "NodeInsufficientDevice"


def test_containers_of_a_pod_add_up_on_a_card() -> None:
    """Two regular containers of 50000 MiB do not share a card of 81920."""
    two = pod(container("a", memory=50000), container("b", memory=50000))
    assert reasons(put(fleet(cards=1), two)) == "1/1 CardInsufficientMemory"
    outcome = put(fleet(cards=2), two)
    assert cards_of(outcome, "a") != cards_of(outcome, "b")


def test_an_init_container_does_not_add_up_with_the_regular_ones() -> None:
    """It ends before they start, so the pod is charged the larger of both."""
    outcome = put(fleet(cards=1), pod(container("init", Kind.INIT, memory=80000), container("main", memory=50000)))
    assert isinstance(outcome, Placement)
    assert outcome.charges[0].memory_mib == 80000
    assert outcome.charges[0].slots == 1


def test_a_sidecar_adds_up_with_all_later_containers() -> None:
    """A restartable init container adds up with later init containers and with the regular ones."""
    request = pod(
        container("side", Kind.SIDECAR, memory=30000),
        container("init", Kind.INIT, memory=50000),
        container("main", memory=20000),
    )
    outcome = put(fleet(cards=1), request)
    assert isinstance(outcome, Placement)
    assert (outcome.charges[0].memory_mib, outcome.charges[0].slots) == (80000, 2)
    too_much = pod(container("side", Kind.SIDECAR, memory=40000), container("init", Kind.INIT, memory=50000))
    assert reasons(put(fleet(cards=1), too_much)) == "1/1 CardInsufficientMemory"


def test_charges_follow_from_the_allocation() -> None:
    """A restart counts for a pod what the decision reserved."""
    request = pod(
        container("init", Kind.INIT, memory=100),
        container("side", Kind.SIDECAR, memory=200, cores=100),
        container("main", count=2, memory=300, cores=200),
    )
    outcome = put(fleet(), request)
    assert isinstance(outcome, Placement)
    assert charges(outcome.allocation, request) == outcome.charges


def test_a_node_without_inventory_is_rejected() -> None:
    """A node that no agent reports is a rejection, not an error."""
    constraints = read_constraints({}, AllocationSettings())
    outcome = finish(place(LedgerView(Ledger()), PlacementQuery(pod(container(memory=1)), constraints), ["elsewhere"]))
    assert reasons(outcome, "elsewhere") == "NodeUnregistered"


# ---- constraints in annotations (HAMi's rules 1.3, 2.2, 2.3) ------------------------------------------------------


A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"
ONE = container(memory=100)


@pytest.mark.parametrize(
    ("annotations", "indexes"),
    [
        ({"use_uuids": "GPU-n0-2"}, [2]),
        ({"use_uuids": " GPU-n0-3 ,, GPU-n0-2 "}, [2]),
        ({"avoid_uuids": "GPU-n0-0,GPU-n0-1"}, [2]),
        ({"use_uuids": "GPU-n0-0,GPU-n0-3", "avoid_uuids": "GPU-n0-0"}, [3]),
        ({"use_uuids": ""}, [0]),
        ({"use_types": "h100"}, [2]),
        ({"use_types": "V100,H100"}, [2]),
        ({"avoid_types": "a100"}, [2]),
        ({"mode": "mig,hami-core"}, [0]),
    ],
)
def test_annotations_select_cards(annotations: dict[str, str], indexes: list[int]) -> None:
    """UUIDs match exactly, models by a part of their name in any case, modes as items of a list."""
    ledger = mixed(card(0, model=A100), card(1, model=A100), card(2, model=H100), card(3, model=H100))
    assert cards_of(put(ledger, pod(ONE), **annotations)) == indexes


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"use_uuids": "GPU-elsewhere"}, "2/2 CardUuidMismatch"),
        ({"use_types": "V100"}, "2/2 CardTypeMismatch"),
        ({"mode": "mig"}, "2/2 CardTypeMismatch"),
        ({"use_types": "V100", "use_uuids": "GPU-elsewhere"}, "2/2 CardTypeMismatch"),
    ],
)
def test_a_constraint_that_no_card_meets_is_the_reason(annotations: dict[str, str], reason: str) -> None:
    """The type is tested before the UUID."""
    assert reasons(put(mixed(card(0, model=A100), card(1, model=H100)), pod(ONE), **annotations)) == reason


def test_a_cordoned_card_takes_no_new_pods() -> None:
    """Its pods stay. Only health is tested earlier. When the cordon is lifted, the card takes pods again."""
    ledger = mixed(card(0), card(1, healthy=False))
    put(ledger, pod(ONE))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0", "GPU-n0-1"}))
    assert ledger.used[0].sum() == 100
    assert reasons(put(ledger, pod(ONE), use_types="V100")) == "1/2 CardCordoned, 1/2 CardNotHealth"
    ledger.set_node(NodeInventory("n0", (card(0), card(1))))
    assert reasons(put(ledger, pod(ONE))) == "2/2 CardCordoned"
    ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert cards_of(put(ledger, pod(ONE))) == [1]
    ledger.set_cordon("n0", frozenset())
    assert cards_of(put(ledger, pod(ONE))) == [0]


def test_numa_binding_selects_cards_of_one_numa_node() -> None:
    """The node of the preferred card is used if it has enough cards, else the next."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1), card(3, numa=2))
    assert cards_of(put(ledger, pod(container(count=2, memory=100)), numa_bind="true")) == [1, 2]


def test_numa_binding_that_cannot_be_met_is_the_reason_of_fitting_cards() -> None:
    """Cards that fail another test keep its reason; the counts sum to the number of cards."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1, healthy=False))
    outcome = put(ledger, pod(container(count=2, memory=100)), numa_bind="1")
    assert reasons(outcome) == "1/3 CardNotHealth, 2/3 NumaNotFit"


def test_mutex_takes_idle_cards_only() -> None:
    """A card in use is rejected, and that is tested before memory."""
    ledger = mixed(card(0), card(1))
    put(ledger, pod(ONE))
    assert cards_of(put(ledger, pod(ONE), card_policy="mutex")) == [1]
    assert reasons(put(ledger, pod(container(memory=99999)), card_policy="mutex")) == (
        "2/2 ExclusiveDeviceAllocateConflict"
    )


def test_card_policies_apply_in_order() -> None:
    """The first policy that prefers one of two cards decides."""
    ledger = mixed(card(0, numa=1), card(1, numa=0), card(2, numa=0))
    put(ledger, pod(ONE), use_uuids="GPU-n0-2")
    put(ledger, pod(container(memory=100)), use_uuids="GPU-n0-0")
    assert cards_of(put(ledger, pod(ONE), card_policy="numa,binpack")) == [2]
    assert cards_of(put(ledger, pod(ONE), card_policy="numa,spread")) == [1]


def test_weights_decide_which_card_is_fuller() -> None:
    """One card is full of memory, the other of cores."""
    ledger = mixed(card(0), card(1))
    put(ledger, pod(container(memory=800)), use_uuids="GPU-n0-0")
    put(ledger, pod(container(memory=10, cores=800)), use_uuids="GPU-n0-1")
    by_memory = {"card_policy": "binpack", "weights": "slot=0,core=0,memory=1"}
    by_cores = {"card_policy": "binpack", "weights": "slot=0,core=1,memory=0"}
    assert cards_of(put(ledger, pod(container(memory=1)), **by_memory)) == [0]
    assert cards_of(put(ledger, pod(container(memory=1)), **by_cores)) == [1]


def linked(pairs: dict[tuple[int, int], int], *, cards: int = 4) -> Ledger:
    """Return a ledger of one node whose cards have the link scores in `pairs`."""
    scores: dict[str, dict[str, int]] = {}
    for (one, other), value in pairs.items():
        scores.setdefault(f"GPU-n0-{one}", {})[f"GPU-n0-{other}"] = value
        scores.setdefault(f"GPU-n0-{other}", {})[f"GPU-n0-{one}"] = value
    made = tuple(card(index) for index in range(cards))
    layout = of_scores([(each.uuid, each.index, each.numa) for each in made], scores)
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", made, layout))
    return ledger


def test_topology_aware_selects_the_best_linked_cards() -> None:
    """The largest sum over all pairs wins, whatever the order of the cards."""
    ledger = linked({(0, 1): 10, (1, 3): 50, (2, 3): 40, (1, 2): 30})
    assert cards_of(put(ledger, pod(container(count=2, memory=1)), card_policy="topology-aware")) == [1, 3]
    assert cards_of(put(ledger, pod(container(count=3, memory=1)), card_policy="topology-aware")) == [1, 2, 3]


def test_topology_aware_selects_the_worst_linked_single_card() -> None:
    """A single card leaves well-linked groups whole."""
    ledger = linked({(0, 1): 50, (2, 3): 10, (1, 2): 10})
    assert cards_of(put(ledger, pod(ONE), card_policy="topology-aware")) == [3]


def test_topology_aware_without_links_keeps_the_order() -> None:
    """Without link scores, the first cards by the other policies are selected."""
    assert cards_of(put(linked({}), pod(container(count=2, memory=1)), card_policy="topology-aware")) == [0, 1]


@given(cards=st.integers(2, 10), data=st.data())
def test_topology_aware_selection_is_the_best_of_all_subsets(cards: int, data: st.DataObject) -> None:
    """Of equally linked subsets it is the first in the order of the other policies, here that of the cards."""
    count = data.draw(st.integers(2, cards))
    couples = [*combinations(range(cards), 2)]
    pairs = {couple: data.draw(st.sampled_from((0, 10, 25, 50))) for couple in couples}
    outcome = put(linked(pairs, cards=cards), pod(container(count=count, memory=1)), card_policy="topology-aware")
    best = max(combinations(range(cards), count), key=lambda some: sum(pairs[pair] for pair in combinations(some, 2)))
    assert cards_of(outcome) == [*best]


@pytest.mark.parametrize("cards", [16, 20])
def test_topology_aware_selection_scales_to_many_cards(cards: int) -> None:
    """The one clique, of half the cards, is found by comparing all subsets or by growing a group."""
    half = cards // 2
    pairs = {(one, other): 9 for one in range(half, cards) for other in range(half, cards) if one < other}
    outcome = put(linked(pairs, cards=cards), pod(container(count=half, memory=1)), card_policy="topology-aware")
    assert sorted(cards_of(outcome)) == list(range(half, cards))


@pytest.mark.parametrize(
    ("headroom", "request_", "reason"),
    [
        (Headroom(memory_mib=1999), container(count=2, memory=1000), "2/2 ResourceQuotaNotFit"),
        (Headroom(memory_mib=499), container(percent=50), "2/2 ResourceQuotaNotFit"),
        (Headroom(cores=599), container(count=2, memory=1, cores=300), "2/2 ResourceQuotaNotFit"),
        (Headroom(cards=0), ONE, "2/2 ResourceQuotaNotFit"),
        (Headroom(memory_mib=0), container(memory=5000), "2/2 ResourceQuotaNotFit"),
        (Headroom(memory_mib=2000, cores=600, cards=2), container(count=2, memory=1000, cores=300), ""),
    ],
)
def test_an_exceeded_quota_is_the_reason_of_each_card(
    headroom: Headroom, request_: ContainerRequest, reason: str
) -> None:
    """The headroom is compared with the request of all cards, before the card's own memory is tested."""
    outcome = put(mixed(card(0), card(1)), pod(request_), headroom=headroom)
    assert isinstance(outcome, Placement) if not reason else reasons(outcome) == reason


def test_containers_of_a_pod_share_the_headroom() -> None:
    """The second container has the headroom that the first leaves."""
    two = pod(container("a", memory=600), container("b", memory=600))
    assert reasons(put(mixed(card(0), card(1)), two, headroom=Headroom(memory_mib=1199))) == "2/2 ResourceQuotaNotFit"
    assert isinstance(put(mixed(card(0), card(1)), two, headroom=Headroom(memory_mib=1200)), Placement)


@pytest.mark.parametrize(
    ("changes", "annotations", "expected"),
    [
        ({}, {}, True),
        ({"healthy": False}, {}, False),
        ({"memory_mib": 500}, {}, False),
        ({"cores": 100}, {}, False),
        ({}, {"use_types": "B200"}, False),
        ({}, {"avoid_uuids": "GPU-n0-0"}, False),
    ],
)
def test_a_rejection_is_resolvable_if_pods_that_end_could_free_enough(
    changes: dict[str, object], annotations: dict[str, str], *, expected: bool
) -> None:
    """A card in use can become free; an unhealthy, too small or unaccepted card stays so."""
    ledger = fleet(cards=1, **changes)
    put(ledger, pod(container(memory=400, cores=100)))
    outcome = put(ledger, pod(container(memory=1000 if changes else 81920, cores=900)), **annotations)
    assert isinstance(outcome, NoPlacement)
    assert outcome.rejections["n0"].resolvable is expected
