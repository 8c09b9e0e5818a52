"""A pod goes where it fits, by policy, and where it does not every card says why."""

import pytest

from allocation.allocation import charges
from allocation.constraints import read_constraints
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.placement import NoPlacement, Placement, place
from allocation.quota import Room
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.settings import AllocationSettings
from tests.allocation.builders import card, cards_of, container, fleet, mixed, pod, put, reasons


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
def test_sharing_arithmetic(request_: ContainerRequest, fitting: int, reason: str) -> None:
    """As many pods fit on 8 cards of 81920 MiB as arithmetic says, and the next one says why not (systems.md 5.5)."""
    ledger = fleet()
    for _ in range(fitting):
        assert isinstance(put(ledger, pod(request_)), Placement)
    assert reasons(put(ledger, pod(request_))) == reason


def test_half_a_card_is_charged_as_such() -> None:
    """50 % of 81920 MiB is 40960."""
    outcome = put(fleet(), pod(container(percent=50)))
    assert isinstance(outcome, Placement)
    assert outcome.charges[0].memory_mib == 40960


def test_a_whole_card_and_a_share_exclude_each_other() -> None:
    """Who asks all cores gets an idle card only, and nobody joins it, cores or not (hami.md 2.2, 12 and 13)."""
    ledger = fleet(cards=1)
    put(ledger, pod(container(memory=100)))
    assert reasons(put(ledger, pod(container(memory=100, cores=1000)))) == "1/1 ExclusiveDeviceAllocateConflict"
    ledger = fleet(cards=1)
    put(ledger, pod(container(memory=100, cores=1000)))
    assert reasons(put(ledger, pod(container(memory=100)))) == "1/1 CardComputeUnitsExhausted"


def test_an_ill_card_is_not_given() -> None:
    """Health comes before everything else."""
    assert reasons(put(fleet(healthy=False), pod(container(memory=999999)))) == "8/8 CardNotHealth"


def test_more_cards_than_the_node_has() -> None:
    """The node as a whole is too small: a reason that no finished pod can cure."""
    outcome = put(fleet(cards=2), pod(container(count=3, memory=1)))
    assert reasons(outcome) == "NodeInsufficientDevice"
    assert isinstance(outcome, NoPlacement)
    assert not outcome.rejections["n0"].resolvable


def test_too_few_fitting_cards_are_named_with_the_others() -> None:
    """One reason per card; those that fit say that they are too few."""
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
def test_card_policy(policy: str, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    """Two pods of 20 % share a card under binpack and not under spread."""
    ledger = fleet()
    first = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    second = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    assert (first == second) is same


@pytest.mark.parametrize(("policy", "same"), [("binpack", True), ("spread", False)])
def test_node_policy(policy: str, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    """Two pods share a node under binpack and not under spread."""
    ledger = fleet(2)
    chosen = [put(ledger, pod(container(memory=100)), node_policy=policy) for _ in range(2)]
    nodes = [outcome.allocation.node for outcome in chosen if isinstance(outcome, Placement)]
    assert (nodes[0] == nodes[1]) is same


def test_ties_are_broken_the_same_way_every_time() -> None:
    """Equal nodes by name, equal cards by index."""
    outcome = put(fleet(3), pod(container(count=2, memory=1)))
    assert isinstance(outcome, Placement)
    assert outcome.allocation.node == "n0"
    assert cards_of(outcome) == [0, 1]


def test_one_container_never_gets_a_card_twice() -> None:
    """Two GPUs are two cards, however much room one has."""
    outcome = put(fleet(cards=1), pod(container(count=2, memory=1)))
    assert reasons(outcome) == "NodeInsufficientDevice"


def test_containers_of_a_pod_add_up_on_a_card() -> None:
    """Two regular containers of 50000 MiB do not share a card of 81920."""
    two = pod(container("a", memory=50000), container("b", memory=50000))
    assert reasons(put(fleet(cards=1), two)) == "1/1 CardInsufficientMemory"
    outcome = put(fleet(cards=2), two)
    assert cards_of(outcome, "a") != cards_of(outcome, "b")


def test_an_init_container_does_not_add_up_with_the_regular_ones() -> None:
    """It has ended when they start: the pod is charged the larger of both."""
    outcome = put(fleet(cards=1), pod(container("init", Kind.INIT, memory=80000), container("main", memory=50000)))
    assert isinstance(outcome, Placement)
    assert outcome.charges[0].memory_mib == 80000
    assert outcome.charges[0].slots == 1


def test_a_sidecar_stands_beside_everything_that_follows() -> None:
    """A restartable init container adds up with later init steps and with the regular containers."""
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


def test_charges_follow_from_the_annotation_alone() -> None:
    """What a restart counts from a pod is what the decision reserved."""
    request = pod(
        container("init", Kind.INIT, memory=100),
        container("side", Kind.SIDECAR, memory=200, cores=100),
        container("main", count=2, memory=300, cores=200),
    )
    outcome = put(fleet(), request)
    assert isinstance(outcome, Placement)
    assert charges(outcome.allocation, request) == outcome.charges


def test_a_node_without_inventory_is_named() -> None:
    """A node that no agent reports is a reason, not an error."""
    constraints = read_constraints({}, AllocationSettings())
    outcome = place(Ledger(), pod(container(memory=1)), ["elsewhere"], constraints=constraints)
    assert reasons(outcome, "elsewhere") == "NodeUnregistered"


# ---- what a pod's annotations demand (hami.md 1.3, 2.2, 2.3) -------------------------------------------------------


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
def test_a_pod_chooses_its_cards(annotations: dict[str, str], indexes: list[int]) -> None:
    """UUIDs exactly, models by a part of their name in any case, modes as words of a list."""
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
def test_a_choice_that_no_card_meets_is_the_reason(annotations: dict[str, str], reason: str) -> None:
    """The type is asked before the UUID."""
    assert reasons(put(mixed(card(0, model=A100), card(1, model=H100)), pod(ONE), **annotations)) == reason


def test_a_cordoned_card_takes_no_new_pod() -> None:
    """Those on it stay; the reason comes before every other but illness; lifted, it takes pods again."""
    ledger = mixed(card(0), card(1, healthy=False))
    put(ledger, pod(ONE))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0", "GPU-n0-1"}))
    assert ledger.used[0].sum() == 100
    assert reasons(put(ledger, pod(ONE), use_types="V100")) == "1/2 CardCordoned, 1/2 CardNotHealth"
    ledger.set_node(NodeInventory("n0", (card(0), card(1))))
    assert reasons(put(ledger, pod(ONE))) == "2/2 CardCordoned"
    ledger.set_cordon("n0", frozenset())
    assert cards_of(put(ledger, pod(ONE))) == [1]


def test_numa_binding_takes_all_cards_from_one_node() -> None:
    """The preferred card's group if it is large enough, else the next."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1), card(3, numa=2))
    assert cards_of(put(ledger, pod(container(count=2, memory=100)), numa_bind="true")) == [1, 2]


def test_numa_binding_that_cannot_be_met_is_told_of_the_fitting_cards() -> None:
    """Cards that fail for another reason keep it; the counts sum to the cards."""
    ledger = mixed(card(0, numa=0), card(1, numa=1), card(2, numa=1, healthy=False))
    outcome = put(ledger, pod(container(count=2, memory=100)), numa_bind="1")
    assert reasons(outcome) == "1/3 CardNotHealth, 2/3 NumaNotFit"


def test_mutex_takes_idle_cards_only() -> None:
    """A card that is shared is no choice, and says so before memory does."""
    ledger = mixed(card(0), card(1))
    put(ledger, pod(ONE))
    assert cards_of(put(ledger, pod(ONE), card_policy="mutex")) == [1]
    assert reasons(put(ledger, pod(container(memory=99999)), card_policy="mutex")) == (
        "2/2 ExclusiveDeviceAllocateConflict"
    )


def test_policies_apply_in_their_order() -> None:
    """The first that tells two cards apart decides."""
    ledger = mixed(card(0, numa=1), card(1, numa=0), card(2, numa=0))
    put(ledger, pod(ONE), use_uuids="GPU-n0-2")
    put(ledger, pod(container(memory=100)), use_uuids="GPU-n0-0")
    assert cards_of(put(ledger, pod(ONE), card_policy="numa,binpack")) == [2]
    assert cards_of(put(ledger, pod(ONE), card_policy="numa,spread")) == [1]


def test_weights_decide_what_counts_as_full() -> None:
    """One card is full of memory, the other of cores: the weights say which is the fuller."""
    ledger = mixed(card(0), card(1))
    put(ledger, pod(container(memory=800)), use_uuids="GPU-n0-0")
    put(ledger, pod(container(memory=10, cores=800)), use_uuids="GPU-n0-1")
    by_memory = {"card_policy": "binpack", "weights": "slot=0,core=0,memory=1"}
    by_cores = {"card_policy": "binpack", "weights": "slot=0,core=1,memory=0"}
    assert cards_of(put(ledger, pod(container(memory=1)), **by_memory)) == [0]
    assert cards_of(put(ledger, pod(container(memory=1)), **by_cores)) == [1]


def linked(pairs: dict[tuple[int, int], int], *, cards: int = 4) -> Ledger:
    """Answer a node whose cards are linked as `pairs` say."""
    scores: dict[str, dict[str, int]] = {}
    for (one, other), value in pairs.items():
        scores.setdefault(f"GPU-n0-{one}", {})[f"GPU-n0-{other}"] = value
        scores.setdefault(f"GPU-n0-{other}", {})[f"GPU-n0-{one}"] = value
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", tuple(card(index) for index in range(cards)), scores))
    return ledger


def test_several_cards_are_chosen_for_their_links() -> None:
    """The best sum over the pairs wins, whatever the order of the cards."""
    ledger = linked({(0, 1): 10, (1, 3): 50, (2, 3): 40, (1, 2): 30})
    assert cards_of(put(ledger, pod(container(count=2, memory=1)), card_policy="topology-aware")) == [1, 3]
    assert cards_of(put(ledger, pod(container(count=3, memory=1)), card_policy="topology-aware")) == [1, 2, 3]


def test_a_single_card_leaves_good_groups_whole() -> None:
    """The worst linked one is taken."""
    ledger = linked({(0, 1): 50, (2, 3): 10, (1, 2): 10})
    assert cards_of(put(ledger, pod(ONE), card_policy="topology-aware")) == [3]


def test_without_links_the_order_of_preference_holds() -> None:
    """No scores: the first cards by the other policies."""
    assert cards_of(put(linked({}), pod(container(count=2, memory=1)), card_policy="topology-aware")) == [0, 1]


@pytest.mark.parametrize("cards", [16, 20])
def test_many_cards_are_chosen_in_time(cards: int) -> None:
    """Two cliques of half the cards each: one of them is found, exactly or by growing a group."""
    half = cards // 2
    pairs = {(one, other): 9 for one in range(half, cards) for other in range(half, cards) if one < other}
    outcome = put(linked(pairs, cards=cards), pod(container(count=half, memory=1)), card_policy="topology-aware")
    assert sorted(cards_of(outcome)) == list(range(half, cards))


@pytest.mark.parametrize(
    ("room", "request_", "reason"),
    [
        (Room(memory_mib=1999), container(count=2, memory=1000), "2/2 ResourceQuotaNotFit"),
        (Room(memory_mib=499), container(percent=50), "2/2 ResourceQuotaNotFit"),
        (Room(cores=599), container(count=2, memory=1, cores=300), "2/2 ResourceQuotaNotFit"),
        (Room(cards=0), ONE, "2/2 ResourceQuotaNotFit"),
        (Room(memory_mib=0), container(memory=5000), "2/2 ResourceQuotaNotFit"),
        (Room(memory_mib=2000, cores=600, cards=2), container(count=2, memory=1000, cores=300), ""),
    ],
)
def test_a_quota_is_a_reason_of_each_card(room: Room, request_: ContainerRequest, reason: str) -> None:
    """What the namespace may still take; per card times the number of cards; asked before the card's own memory."""
    outcome = put(mixed(card(0), card(1)), pod(request_), room=room)
    assert isinstance(outcome, Placement) if not reason else reasons(outcome) == reason


def test_containers_of_a_pod_share_the_room() -> None:
    """The second container gets what the first leaves."""
    two = pod(container("a", memory=600), container("b", memory=600))
    assert reasons(put(mixed(card(0), card(1)), two, room=Room(memory_mib=1199))) == "2/2 ResourceQuotaNotFit"
    assert isinstance(put(mixed(card(0), card(1)), two, room=Room(memory_mib=1200)), Placement)


@pytest.mark.parametrize(
    ("changes", "wishes", "expected"),
    [
        ({}, {}, True),
        ({"healthy": False}, {}, False),
        ({"memory_mib": 500}, {}, False),
        ({"cores": 100}, {}, False),
        ({}, {"use_types": "B200"}, False),
        ({}, {"avoid_uuids": "GPU-n0-0"}, False),
    ],
)
def test_a_rejection_tells_whether_leaving_pods_could_cure_it(
    changes: dict[str, object], wishes: dict[str, str], *, expected: bool
) -> None:
    """A card in use may become free; one that is ill, too small, or not wanted stays so."""
    ledger = fleet(cards=1, **changes)
    put(ledger, pod(container(memory=400, cores=100)))
    outcome = put(ledger, pod(container(memory=1000 if changes else 81920, cores=900)), **wishes)
    assert isinstance(outcome, NoPlacement)
    assert outcome.rejections["n0"].resolvable is expected
