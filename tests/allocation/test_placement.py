"""A pod goes where it fits, by policy, and where it does not every card says why."""

import pytest

from allocation.allocation import charges
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.placement import NoPlacement, Placement, place
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import CardPolicy, NodePolicy


def fleet(nodes: int = 1, *, cards: int = 8, **changes: object) -> Ledger:
    """Answer a ledger of equal nodes n0, n1, … with cards of 81920 MiB and 10 slots."""
    ledger = Ledger()
    for node in range(nodes):
        ledger.set_node(
            NodeInventory(
                f"n{node}",
                tuple(
                    Card(**{"uuid": f"GPU-n{node}-{index}", "index": index, "memory_mib": 81920, **changes})  # type: ignore[arg-type]
                    for index in range(cards)
                ),
            )
        )
    return ledger


def pod(*containers: ContainerRequest) -> PodRequest:
    """Answer a request of these containers."""
    return PodRequest(containers)


def container(
    name: str = "main", kind: Kind = Kind.REGULAR, *, count: int = 1, memory: int = 0, percent: int = 0, cores: int = 0
) -> ContainerRequest:
    """Answer a container's request; cores in millicards."""
    return ContainerRequest(name, kind, name, count, memory or None, percent, cores)


def put(
    ledger: Ledger,
    request: PodRequest,
    *,
    node_policy: NodePolicy = "binpack",
    card_policy: CardPolicy = "spread",
    serial: list[int] = [0],  # noqa: B006 -- counts over the calls of a test run
) -> Placement | NoPlacement:
    """Place and reserve."""
    outcome = place(ledger, request, ledger.nodes, node_policy=node_policy, card_policy=card_policy)
    if isinstance(outcome, Placement):
        serial[0] += 1
        ledger.assume(f"pod-{serial[0]}", outcome.allocation.node, outcome.charges)
    return outcome


def reasons(outcome: Placement | NoPlacement, node: str = "n0") -> str:
    """Answer what a node said."""
    assert isinstance(outcome, NoPlacement)
    return str(outcome.rejections[node])


def cards_of(outcome: Placement | NoPlacement, name: str = "main") -> list[int]:
    """Answer the indexes of a container's cards."""
    assert isinstance(outcome, Placement)
    return [share.index for share in outcome.allocation.containers[name]]


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
def test_card_policy(policy: CardPolicy, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    """Two pods of 20 % share a card under binpack and not under spread."""
    ledger = fleet()
    first = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    second = cards_of(put(ledger, pod(container(memory=100, cores=200)), card_policy=policy))
    assert (first == second) is same


@pytest.mark.parametrize(("policy", "same"), [("binpack", True), ("spread", False)])
def test_node_policy(policy: NodePolicy, same: bool) -> None:  # noqa: FBT001 -- a parameter of the table
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
    outcome = place(Ledger(), pod(container(memory=1)), ["elsewhere"], node_policy="binpack", card_policy="spread")
    assert reasons(outcome, "elsewhere") == "NodeUnregistered"
