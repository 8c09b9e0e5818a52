"""Pods never hold more of a card than it has, and the ledger always equals a recount."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from allocation.allocation import Charge
from allocation.constraints import read_constraints
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import Placement, place
from allocation.placement.query import PlacementQuery
from allocation.request import MILLI_PER_TFLOP, ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.sharing import SharingRules
from allocation.steps import finish

MOST = 3
CONSTRAINTS = read_constraints({}, AllocationSettings())


def inventory(node: str, cards: int = 2, *, memory: int = 1000, healthy: bool = True, tflops: int = 0) -> NodeInventory:
    """Return the inventory of a node with equal cards."""
    uuids = [f"GPU-{node}-{index}" for index in range(cards)]
    return NodeInventory(
        node,
        tuple(Card(uuid, index, memory, slots=4, healthy=healthy, tflops=tflops) for index, uuid in enumerate(uuids)),
    )


def recount(ledger: Ledger) -> Ledger:
    """Return a new ledger built from the inventories and reservations in `ledger`, as after a restart."""
    fresh = Ledger(ledger.rules)
    for node in ledger.nodes:
        reported = ledger.inventory(node)
        assert reported is not None
        fresh.set_node(reported)
    for reservation in ledger.reservations():
        fresh.record(reservation.uid, reservation.node, reservation.charges)
    return fresh


def test_a_reservation_beyond_capacity_changes_nothing() -> None:
    """If the second of two cards is too full, the first is not charged either."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.assume("a", "n1", [Charge("GPU-n1-1", 600, 0, 1)])
    before = ledger.used.copy()
    with pytest.raises(OverCapacityError):
        ledger.assume("b", "n1", [Charge("GPU-n1-0", 600, 0, 1), Charge("GPU-n1-1", 600, 0, 1)])
    assert np.array_equal(ledger.used, before)
    assert ledger.reservation("b") is None


def test_a_card_is_accepted_from_one_node_only() -> None:
    """A card that two nodes report could be allocated twice."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    with pytest.raises(AllocationError, match="GPU-n1-0"):
        ledger.set_node(NodeInventory("n2", inventory("n1").cards))
    assert ledger.nodes == ("n1",)


def test_pods_recorded_before_their_cards_are_charged() -> None:
    """At startup, pods and inventories arrive in any order."""
    ledger = Ledger()
    ledger.record("a", "n1", [Charge("GPU-n1-0", 600, 100, 1)])
    ledger.set_node(inventory("n1"))
    assert ledger.used[0].sum() == 600


def test_reservations_survive_the_loss_of_their_node() -> None:
    """A node that returns has the same amounts in use."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.record("a", "n1", [Charge("GPU-n1-0", 600, 100, 1)])
    ledger.drop_node("n1")
    assert ledger.used.sum() == 0
    ledger.set_node(inventory("n1"))
    assert ledger.used[0].sum() == 600


def test_columns_grow_with_nodes_and_cards() -> None:
    """A node can have more cards than any before it, and the fleet more nodes than there are rows."""
    ledger = Ledger(rows=1, cards=1)
    for node in ("n1", "n2", "n3"):
        ledger.set_node(inventory(node, cards=5))
    ledger.set_node(inventory("n2", cards=16))
    assert ledger.present.sum() == 26


WHOLE = Charge("GPU-n1-0", 1000, 1000, 1, whole=True)


def test_a_whole_card_has_nothing_left() -> None:
    """All that the card has is charged, also compute beyond 1000 millicards, of which a plain request takes none."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n1", (Card("GPU-n1-0", 0, 1000, cores=2000, slots=4),)))
    ledger.assume("a", "n1", [WHOLE])
    assert ledger.free(0, 0) == (0, 0, 0, 0)
    for other in (Charge("GPU-n1-0", 0, 0, 1), Charge("GPU-n1-0", 0, 1000, 1)):
        with pytest.raises(OverCapacityError):
            ledger.assume("b", "n1", [other])
    ledger.release("a")
    assert ledger.used.sum() == 0


def test_a_card_in_use_is_not_given_whole() -> None:
    """Not even if its other pod takes no memory and no compute, so that the amounts alone would fit."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.assume("a", "n1", [Charge("GPU-n1-0", 0, 0, 1)])
    with pytest.raises(OverCapacityError, match="GPU-n1-0 on node n1 is in use"):
        ledger.assume("b", "n1", [WHOLE])
    ledger.release("a")
    ledger.assume("b", "n1", [WHOLE])


def test_a_whole_card_that_is_reported_otherwise_is_charged_as_it_is_now() -> None:
    """So releasing it leaves nothing, and a recount gives the same in between."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.assume("a", "n1", [WHOLE])
    for memory in (3000, 500):
        ledger.set_node(inventory("n1", memory=memory))
        assert ledger.free(0, 0) == (0, 0, 0, 0)
        assert np.array_equal(recount(ledger).used[:, 0, :2], ledger.used[:, 0, :2])
    ledger.release("a")
    assert ledger.used.sum() == 0


class Life(RuleBasedStateMachine):
    """Random histories of a ledger: nodes come and go, pods are placed, confirmed, forgotten and released."""

    pods: Bundle[str] = Bundle("pods")
    nodes = st.sampled_from(["n1", "n2", "n3"])

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(SharingRules(MOST, locks_isolation=True), rows=1, cards=1)
        self.serial = 0

    @rule(
        node=nodes,
        cards=st.integers(1, 4),
        memory=st.sampled_from([1000, 2000]),
        healthy=st.booleans(),
        tflops=st.sampled_from([0, 7, 312]),
    )
    def report(self, node: str, cards: int, memory: int, *, healthy: bool, tflops: int) -> None:
        """Report a node, possibly with other cards than before."""
        if not any(True for _ in self.ledger.reservations(node)):
            self.ledger.set_node(inventory(node, cards, memory=memory, healthy=healthy, tflops=tflops))

    @rule(node=nodes)
    def lose(self, node: str) -> None:
        """Remove a node; its pods are deleted with it."""
        for reservation in tuple(self.ledger.reservations(node)):
            self.ledger.release(reservation.uid)
        self.ledger.drop_node(node)

    @rule(
        target=pods,
        count=st.integers(1, 2),
        memory=st.one_of(st.none(), st.integers(0, 1200)),
        cores=st.sampled_from([0, 10, 300, 334, 600, 1000]),
        tflops=st.sampled_from([0, 0, 1, 104, 312]),
        init=st.booleans(),
        sidecar=st.booleans(),
        isolation=st.sampled_from((Isolation.NONE, Isolation.MPS)),
    )
    def put(
        self,
        count: int,
        memory: int | None,
        cores: int,
        tflops: int,
        *,
        init: bool,
        sidecar: bool,
        isolation: Isolation,
    ) -> object:
        """Place a pod and assume it; one of its containers may request TFLOPs, and the others cores."""
        containers = [_container("main", Kind.REGULAR, count, memory, cores, tflops=tflops)]
        if init:
            containers.insert(0, _container("init", Kind.INIT, 1, 500, cores))
        if sidecar:
            containers.insert(0, _container("sidecar", Kind.SIDECAR, 1, 100, 10))
        request = PodRequest(tuple(containers), isolation)
        before = self.ledger.used.copy()
        outcome = finish(place(LedgerView(self.ledger), PlacementQuery(request, CONSTRAINTS), ["n1", "n2", "n3"]))
        assert np.array_equal(self.ledger.used, before), "placement only reads the ledger"
        if not isinstance(outcome, Placement):
            for node, rejection in outcome.rejections.items():
                reported = self.ledger.inventory(node)
                if rejection.counts:
                    assert reported is not None
                    assert sum(rejection.counts.values()) == len(reported.cards), "one reason per card"
            return multiple()
        self.serial += 1
        uid = f"pod-{self.serial}"
        self.ledger.assume(uid, outcome.allocation.node, outcome.charges)
        return uid

    @rule(uid=pods)
    def confirm(self, uid: str) -> None:
        """Record an assumed pod as bound."""
        reservation = self.ledger.reservation(uid)
        if reservation is not None:
            self.ledger.record(uid, reservation.node, reservation.charges)
            assert not next(each for each in self.ledger.reservations() if each.uid == uid).assumed

    @rule(uid=consumes(pods))
    def undo(self, uid: str) -> None:
        """Release an assumed pod; assuming and releasing it again changes nothing."""
        reservation = self.ledger.reservation(uid)
        if reservation is None or not reservation.assumed:
            return
        self.ledger.release(uid)
        free = self.ledger.used.copy()
        self.ledger.assume(uid, reservation.node, reservation.charges)
        self.ledger.release(uid)
        assert np.array_equal(self.ledger.used, free)

    @rule(uid=consumes(pods))
    def end(self, uid: str) -> None:
        """Release a pod; a second release changes nothing."""
        self.ledger.release(uid)
        self.ledger.release(uid)

    @invariant()
    def no_card_is_over_capacity(self) -> None:
        """Invariant I1."""
        assert (self.ledger.used <= self.ledger.total).all()
        assert (self.ledger.used >= 0).all()

    @invariant()
    def no_node_has_more_pods_than_it_may(self) -> None:
        """Counted from the reservations."""
        for node in self.ledger.nodes:
            assert len([*self.ledger.reservations(node)]) <= MOST

    @invariant()
    def no_card_has_pods_of_two_isolations(self) -> None:
        """Counted from the reservations; a card without pods is not locked."""
        held = defaultdict[str, set[str]](set)
        for each in self.ledger.reservations():
            for charge in each.charges:
                held[charge.uuid].add(charge.isolation)
        assert all(len(isolations) == 1 for isolations in held.values())
        for node in self.ledger.nodes:
            row, reported = self.ledger.row(node), self.ledger.inventory(node)
            for position, card in enumerate(reported.cards if reported is not None else ()):
                assert bool(self.ledger.isolation.locks[row, position]) == (card.uuid in held)

    @invariant()
    def a_recount_gives_the_same(self) -> None:
        """Invariant I6: a recount from inventories and pods equals the incremental state."""
        fresh = recount(self.ledger)
        for node in self.ledger.nodes:
            mine, other = self.ledger.row(node), fresh.row(node)
            width = len((self.ledger.inventory(node) or inventory(node)).cards)
            assert self.ledger.pods[mine] == fresh.pods[other]
            assert self.ledger.difference(node) == ""
            names = [(self.ledger.isolation.names(mine, at), fresh.isolation.names(other, at)) for at in range(width)]
            assert all(own == others for own, others in names)
            assert np.array_equal(self.ledger.used[:, mine, :width], fresh.used[:, other, :width])
            assert np.array_equal(self.ledger.total[:, mine, :width], fresh.total[:, other, :width])


def _container(
    name: str, kind: Kind, count: int, memory: int | None, cores: int, *, tflops: int = 0
) -> ContainerRequest:
    percent = 0 if memory is not None else 40
    return ContainerRequest(
        name, kind, name, count, memory, percent, 0 if tflops else cores, tflops=tflops * MILLI_PER_TFLOP
    )


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40)
