"""Cards that are bound to a pod's application: it gets these and no others, and of each what the binding says."""

import random
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import names
from allocation.allocation import Charge
from allocation.bindings.binding import ShareMode
from allocation.bindings.bound_cards import BoundCard, BoundCards, ConsumePolicy
from allocation.claim import ClaimDevices, ClaimSpec, resources
from allocation.constraints import read_constraints
from allocation.errors import AllocationError
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import bound_placement
from allocation.placement.placement import NoPlacement, Placement
from allocation.placement.query import PlacementQuery
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from allocation.quota import UNLIMITED, Headroom
from allocation.request import ContainerRequest
from allocation.settings import AllocationSettings
from allocation.wire import environment, pod_allocation
from scheduler import gpu_requirements
from scheduler.gpu_requirements import GpuRequirements
from tests.allocation.ledger.test_ledger import recount
from tests.allocation.support.binding import bound, bound_card
from tests.allocation.support.builders import KEYS, card, cards_of, container, fleet, mixed, pod, put, reasons, whole
from tests.allocation.support.mig_cards import instance, mig_card

SETTINGS = AllocationSettings()
MODES: tuple[ShareMode, ...] = ("exclusive", "memory-slicing", "time-slicing")


def place(
    ledger: Ledger,
    cards: BoundCards,
    *containers: ContainerRequest,
    uid: str = "",
    headroom: Headroom = UNLIMITED,
    **annotations: str,
) -> Placement | NoPlacement:
    """Place a pod on any node; with a `uid`, reserve as well. `annotations` are by the short names of `KEYS`."""
    constraints = read_constraints({KEYS[name]: value for name, value in annotations.items()}, SETTINGS)
    query = PlacementQuery(pod(*containers or (container(memory=100),)), constraints, headroom)
    outcome = bound_placement.place(LedgerView(ledger), query, cards, ledger.nodes)
    if uid and isinstance(outcome, Placement):
        ledger.assume(uid, outcome.allocation.node, outcome.charges)
    return outcome


def on(*cards: int, node: str = "n0", mode: ShareMode = "memory-slicing") -> Iterator[BoundCard]:
    """Return bound cards of a node by their indexes."""
    return (bound_card(f"GPU-{node}-{index}", mode) for index in cards)


# ---- which cards -----------------------------------------------------------------------------------------------------


def test_policy_all_gives_every_bound_card_of_one_node_whatever_the_count() -> None:
    """Of the nodes, the first by name; the pod requests one card and gets the two that are bound there."""
    cards = bound("all", *on(3, node="n2"), *on(1, 5, node="n1"))
    outcome = place(fleet(3), cards)
    assert isinstance(outcome, Placement)
    assert (outcome.allocation.node, cards_of(outcome)) == ("n1", [1, 5])
    assert [*outcome.scores] == ["n1", "n2"]
    assert str(outcome.rejections["n0"]) == "no card bound to app comfyui of alice"


def test_policy_single_gives_as_many_bound_cards_as_the_pod_requests() -> None:
    """And the node policy decides between the nodes."""
    cards = bound("single", *on(0, 1, 2, node="n0"), *on(0, 1, 2, node="n1"))
    ledger = fleet(2)
    assert isinstance(place(ledger, bound("single", *on(7, node="n1")), container(memory=1000), uid="other"), Placement)
    for policy, node in (("binpack", "n1"), ("spread", "n0")):
        outcome = place(ledger, cards, container(memory=100, count=2), node_policy=policy)
        assert isinstance(outcome, Placement)
        assert outcome.allocation.node == node
        assert len(cards_of(outcome)) == 2
        assert {*cards_of(outcome)} < {0, 1, 2}


def test_a_pod_cannot_choose_other_cards_than_those_of_its_application() -> None:
    """What its annotation lists does not count."""
    outcome = place(fleet(1), bound("single", *on(3)), use_uuids="GPU-n0-0")
    assert cards_of(outcome) == [3]


@pytest.mark.parametrize("policy", ["all", "single"])
def test_a_pod_can_avoid_a_bound_card(policy: ConsumePolicy) -> None:
    """Policy all gives it the others, and nothing if it avoids them all."""
    assert cards_of(place(fleet(1), bound(policy, *on(2, 3)), avoid_uuids="GPU-n0-2")) == [3]
    outcome = place(fleet(1), bound(policy, *on(2, 3)), avoid_uuids="GPU-n0-2,GPU-n0-3")
    assert reasons(outcome) == "0 of 0 cards bound to app comfyui of alice left, 1 needed"


def test_a_consumed_card_is_not_given_twice() -> None:
    """Policy all passes over the node of the card, policy single over the card; the reason names card and pod."""
    taken = bound_card("GPU-n0-0", "memory-slicing", consumers=("ns-a/one", "ns-a/two"))
    outcome = place(fleet(2), bound("all", taken, *on(1), *on(4, node="n1")))
    assert isinstance(outcome, Placement)
    assert outcome.allocation.node == "n1"
    assert str(outcome.rejections["n0"]) == (
        "1 of 2 cards bound to app comfyui of alice left, 2 needed; in use: GPU-n0-0 (pod ns-a/one, ns-a/two)"
    )
    assert outcome.rejections["n0"].resolvable
    assert cards_of(place(fleet(1), bound("single", taken, *on(1)))) == [1]
    assert reasons(place(fleet(1), bound("single", taken))) == (
        "0 of 1 cards bound to app comfyui of alice left, 1 needed; in use: GPU-n0-0 (pod ns-a/one, ns-a/two)"
    )


def test_too_few_bound_cards_do_not_become_more_by_waiting_for_pods() -> None:
    """Policy single: a pod that requests three of two bound cards."""
    outcome = place(fleet(1), bound("single", *on(0, 1)), container(memory=100, count=3))
    assert reasons(outcome) == "2 of 2 cards bound to app comfyui of alice left, 3 needed"
    assert isinstance(outcome, NoPlacement)
    assert not outcome.rejections["n0"].resolvable


def test_an_unhealthy_bound_card_is_not_replaced() -> None:
    """Policy all waits for all cards of the node; policy single takes the healthy one."""
    ledger = mixed(card(0), card(1, healthy=False), card(2))
    assert reasons(place(ledger, bound("all", *on(0, 1)))) == (
        "1/3 AllocatedCardsInsufficientRequest, 1/3 CardNotHealth, 1/3 CardUuidMismatch"
    )
    assert cards_of(place(ledger, bound("single", *on(0, 1)))) == [0]


def test_a_card_that_no_node_has_counts_nowhere() -> None:
    """An application service may bind a card before its node registers it, or after it is gone."""
    ghost = bound_card("GPU-ghost", "memory-slicing")
    assert cards_of(place(fleet(1), bound("all", ghost, *on(2)))) == [2]
    assert reasons(place(fleet(1), bound("all", ghost))) == "no card bound to app comfyui of alice"


# ---- what of each card -----------------------------------------------------------------------------------------------


def test_each_card_has_the_memory_of_its_own_binding() -> None:
    """The request decides where the binding sets none, and the share mode where it is not memory slicing."""
    ledger = fleet(1)
    cards = bound(
        "all",
        bound_card("GPU-n0-0", "memory-slicing", memory=8192),
        bound_card("GPU-n0-1", "memory-slicing"),
        bound_card("GPU-n0-2", "time-slicing", memory=8192),
        bound_card("GPU-n0-3", "exclusive", memory=8192),
    )
    outcome = place(ledger, cards, container(memory=300, cores=200))
    assert isinstance(outcome, Placement)
    shares = outcome.allocation.containers["main"]
    assert [(share.memory_mib, share.cores, share.whole) for share in shares] == [
        (8192, 200, False),
        (300, 200, False),
        (0, 200, False),
        (81920, 200, True),
    ]


def test_a_card_too_full_for_its_binding_is_the_reason() -> None:
    """Each card is judged by what is bound of it: the same pod fits the other card."""
    ledger = mixed(card(0), card(1))
    both = (bound_card("GPU-n0-0", "memory-slicing", memory=1001), bound_card("GPU-n0-1", "memory-slicing", memory=999))
    assert reasons(place(ledger, bound("all", *both))) == (
        "1/2 AllocatedCardsInsufficientRequest, 1/2 CardInsufficientMemory"
    )
    assert cards_of(place(ledger, bound("single", *both))) == [1]


OTHERS = (container(memory=1), container(), container(memory=1, cores=1000), container(percent=100), whole())


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("cores", [1000, 2000])
def test_nobody_else_gets_a_share_of_an_exclusive_card(other: ContainerRequest, cores: int) -> None:
    """In either order, even a pod that requests no memory, and even if the card has compute left."""
    ledger = mixed(card(0, cores=cores))
    cards = bound("all", *on(0, mode="exclusive"))
    assert isinstance(place(ledger, cards, container(memory=1), uid="a"), Placement)
    assert reasons(put(ledger, pod(other))) in {
        "1/1 CardTimeSlicingExhausted",
        "1/1 ExclusiveDeviceAllocateConflict",
    }
    for mode in MODES:
        assert isinstance(place(ledger, bound("all", *on(0, mode=mode)), container(memory=1)), NoPlacement)
    ledger = mixed(card(0, cores=cores))
    assert isinstance(put(ledger, pod(other)), Placement)
    assert isinstance(place(ledger, cards, container(memory=1)), NoPlacement)


def test_time_slicing_pods_share_a_card_up_to_its_slots() -> None:
    """They take no memory; a request for a whole card is one for a slot."""
    ledger = mixed(card(0, slots=3))
    cards = bound("all", *on(0, mode="time-slicing"))
    for number in range(3):
        assert isinstance(place(ledger, cards, container(percent=100, cores=1000), uid=f"p{number}"), Placement)
    assert ledger.free(0, 0) == (1000, 1000, 0, 0)
    assert reasons(place(ledger, cards)) == "1/1 CardTimeSlicingExhausted"


def test_a_card_in_mig_mode_stands_for_its_instances() -> None:
    """Policy all gives the pod one instance of each, single as many as it requests."""
    ledger = mixed(card(0), mig_card(1), instance(1, "1g.5gb", 0), instance(1, "2g.10gb", 2))
    outcome = place(ledger, bound("all", *on(0, 1)))
    assert isinstance(outcome, Placement)
    shares = outcome.allocation.containers["main"]
    assert [(share.uuid, share.parent) for share in shares] == [("GPU-n0-0", ""), ("MIG-n0-1-0", "GPU-n0-1")]
    outcome = place(ledger, bound("single", *on(1)), container(memory=100, count=1), uid="one")
    assert isinstance(outcome, Placement)
    assert [charge.parent for charge in outcome.charges] == ["GPU-n0-1"]
    assert isinstance(place(ledger, bound("single", *on(1)), uid="two"), Placement)
    assert isinstance(place(ledger, bound("single", *on(1))), NoPlacement)


# ---- quotas ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    memory=st.lists(st.sampled_from((None, 1, 300, 700, 1000)), min_size=1, max_size=4),
    modes=st.lists(st.sampled_from(MODES), min_size=4, max_size=4),
    most=st.integers(0, 3000),
    policy=st.sampled_from(("all", "single")),
    count=st.integers(1, 3),
)
def test_no_mix_of_cards_exceeds_the_headroom(
    memory: list[int | None], modes: list[ShareMode], most: int, policy: ConsumePolicy, count: int
) -> None:
    """However different the amounts of the cards are."""
    ledger = mixed(*(card(index, memory_mib=1000) for index in range(4)))
    cards = (bound_card(f"GPU-n0-{index}", modes[index], memory=each) for index, each in enumerate(memory))
    outcome = place(
        ledger, bound(policy, *cards), container(memory=200, count=count), headroom=Headroom(memory_mib=most, cards=3)
    )
    if isinstance(outcome, Placement):
        assert sum(charge.memory_mib for charge in outcome.charges) <= most
        assert len(outcome.charges) <= 3


# ---- in any fleet ----------------------------------------------------------------------------------------------------


class World:
    """Nodes with cards of all kinds, other pods on them, and the cards that are bound to an application."""

    def __init__(self, seed: int, *, mig: bool, cores: bool) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- repeatable
        self.ledger = Ledger()
        for number in range(self.chance.randint(1, 3)):
            self.add_node(f"n{number}", mig=mig)
        for number in range(self.chance.randint(0, 8)):
            self.add_pod(f"old-{number}", cores=cores)
        uuids = [card.uuid for card in self.cards if card.instance is None]
        granted = self.chance.sample(uuids, self.chance.randint(0, len(uuids)))
        self.bound_cards = [self.bound_card(uuid) for uuid in (*granted, "GPU-ghost")]

    @property
    def cards(self) -> list[Card]:
        """All cards and instances."""
        found = (self.ledger.inventory(node) for node in self.ledger.nodes)
        return [card for inventory in found if inventory is not None for card in inventory.cards]

    def add_node(self, name: str, *, mig: bool) -> None:
        """Add a node with up to four cards, and perhaps one in MIG mode."""
        chance = self.chance
        cards = tuple(
            Card(
                f"GPU-{name}-{index}",
                index,
                chance.choice((1000, 4000)),
                slots=chance.choice((1, 2, 4)),
                numa=index % 2,
                healthy=chance.random() > 0.1,
            )
            for index in range(chance.randint(0, 4))
        )
        if mig and chance.random() < 0.5:
            cards += (mig_card(9, node=name), *(instance(9, "1g.5gb", start, node=name) for start in range(2)))
        self.ledger.set_node(NodeInventory(name, cards))

    def add_pod(self, uid: str, *, cores: bool) -> None:
        """Add another pod to a card, if the card takes it."""
        cards = [card for card in self.cards if card.mode != "mig" or card.instance is not None]
        if cards:
            chosen = self.chance.choice(cards)
            parent = chosen.instance.parent if chosen.instance is not None else ""
            used = self.chance.choice((0, 300)) if cores else 0
            memory = self.chance.choice((0, 100, 900))
            is_whole = not parent and self.chance.random() < 0.1
            charge = Charge(chosen.uuid, memory, used, 1, parent, is_whole)
            node = next(node for node in self.ledger.nodes if self.ledger.position(chosen.uuid) in self.positions(node))
            try:
                self.ledger.assume(uid, node, (charge,))
            except AllocationError:
                return

    def positions(self, node: str) -> set[tuple[int, int] | None]:
        """Return where the cards of a node are."""
        inventory = self.ledger.inventory(node)
        return {self.ledger.position(card.uuid) for card in (inventory.cards if inventory is not None else ())}

    def bound_card(self, uuid: str) -> BoundCard:
        """Return a card that is bound to the application, perhaps in use by another of its pods."""
        chance = self.chance
        consumers = ("ns-a/other",) if chance.random() < 0.15 else ()
        memory = chance.choice((None, 1, 500, 1500))
        return bound_card(uuid, chance.choice(MODES), memory=memory, consumers=consumers)

    def of_node(self, node: str) -> dict[str, BoundCard]:
        """Return the bound cards of a node."""
        here = self.positions(node) - {None}
        return {card.uuid: card for card in self.bound_cards if self.ledger.position(card.uuid) in here}


def random_pod(chance: random.Random) -> tuple[SimpleNamespace, GpuRequirements]:
    """Return a pod, with a claim or without, as admission leaves it, and what it requires."""
    find, annotations = None, {}
    number = chance.choice((1, 1, 2))
    if chance.random() < 0.3:
        kinds = (ClaimDevices(1), ClaimDevices(2), ClaimDevices(1, "Shared", memory_mib=300, cores=10))
        claim = ClaimSpec(chance.choice((*kinds, ClaimDevices(2, "Shared"), ClaimDevices(1, "MIG"))))
        find, annotations = claim, {names.CLAIM: "c"}
        limits = {name: str(amount) for name, amount in resources(claim.devices, SETTINGS).items()}
    else:
        limits = {SETTINGS.resources.count: str(chance.choice((1, 1, 2)))}
        if chance.random() < 0.8:
            limits[SETTINGS.resources.memory] = str(chance.choice((100, 400, 1000)))
        if chance.random() < 0.3:
            limits[SETTINGS.resources.cores] = str(chance.choice((30, 100)))
    amounts: dict[str, Quantity] = {**limits}
    containers = [Container(name=f"c{each}", resources=Resources(limits=amounts)) for each in range(number)]
    first = [Container(name="i", resources=Resources(limits=amounts))] if chance.random() < 0.2 else []
    spec = SimpleNamespace(containers=containers, init_containers=first, node_selector={})
    return spec, gpu_requirements.read(spec, annotations, SETTINGS, find_claim=lambda _: find)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_pod_gets_the_cards_of_its_application_and_no_others(seed: int) -> None:
    """For any fleet, bindings, modes and pods; and a restart reads from the pod what was reserved for it."""
    world = World(seed, mig=True, cores=True)
    ledger, chance = world.ledger, world.chance
    policy: ConsumePolicy = chance.choice(("all", "single"))
    spec, asks = random_pod(chance)
    try:
        requirements = asks.on(bound(policy, *world.bound_cards))
    except AllocationError:
        assert policy == "all"
        assert len(asks.own.gpu_containers) > 1
        return
    cards = requirements.bound
    assert cards is not None
    query = PlacementQuery(requirements.request, requirements.constraints)
    outcome = bound_placement.place(LedgerView(ledger), query, cards, ledger.nodes)
    if isinstance(outcome, NoPlacement):
        assert sorted(outcome.rejections) == sorted(ledger.nodes)
        return
    node = outcome.allocation.node
    here = world.of_node(node)
    used = {share.parent or share.uuid for shares in outcome.allocation.containers.values() for share in shares}
    assert used <= {uuid for uuid, card in here.items() if not card.consumers}
    assert used == {card.uuid for card in cards.among(outcome.allocation).cards}
    if cards.policy == "all":
        assert used == here.keys()
        assert node == min(outcome.scores)
    for shares in outcome.allocation.containers.values():
        for share in shares:
            if not share.parent and here[share.uuid].mode == "exclusive":
                assert share.whole or (asks.claim is not None and asks.claim.mark.exclusivity == "Exclusive")

    before = ledger.used.copy()
    ledger.check(node, outcome.charges)
    ledger.assume("asks", node, outcome.charges)
    assert (ledger.used <= ledger.total).all()
    fresh = recount(ledger)
    for name in ledger.nodes:
        row, other = ledger.row(name), fresh.row(name)
        assert row is not None
        assert other is not None
        assert fresh.used_lists(other) == ledger.used_lists(row)
    allocation = requirements.allocation(outcome.allocation)
    read = pod_allocation.read(spec, environment.annotations(allocation), node=node, settings=SETTINGS)
    assert read == (allocation, outcome.charges)
    with_pod = ledger.used.copy()
    ledger.release("asks")
    assert np.array_equal(ledger.used, before)
    ledger.record("asks", node, read[1])
    assert np.array_equal(ledger.used, with_pod)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_node_takes_a_pod_exactly_if_its_ledger_takes_what_is_bound(seed: int) -> None:
    """Compared with each card by itself: the ledger is asked whether the card takes what the binding says."""
    world = World(seed, mig=False, cores=False)
    ledger, chance = world.ledger, world.chance
    policy: ConsumePolicy = chance.choice(("all", "single"))
    request = container(memory=chance.choice((100, 1000)), count=chance.choice((1, 2)))
    outcome = place(ledger, bound(policy, *world.bound_cards), request)
    fitting = set() if isinstance(outcome, NoPlacement) else {*outcome.scores}
    capacity = {card.uuid: card for card in world.cards}

    def takes(node: str, each: BoundCard) -> bool:
        share = each.request(request)
        memory = share.memory_on(capacity[each.uuid].memory_mib)
        try:
            ledger.check(node, (Charge(each.uuid, memory, share.cores, 1, whole=share.whole),))
        except AllocationError:
            return False
        return capacity[each.uuid].healthy and not each.consumers

    for node in ledger.nodes:
        here = world.of_node(node).values()
        able = [each for each in here if takes(node, each)]
        wanted = len(here) if policy == "all" else request.count
        assert (node in fitting) == (bool(able) and len(able) >= wanted)
