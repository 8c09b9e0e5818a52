"""Nobody gets more of a card than it has, and the ledger always equals a recount."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from allocation.allocation import Charge
from allocation.constraints import read_constraints
from allocation.errors import AllocationError, OverCapacityError
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.placement import Placement, place
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings

CONSTRAINTS = read_constraints({}, AllocationSettings())


def inventory(node: str, cards: int = 2, *, memory: int = 1000, healthy: bool = True) -> NodeInventory:
    """Answer a node of equal cards."""
    return NodeInventory(
        node, tuple(Card(f"GPU-{node}-{index}", index, memory, slots=4, healthy=healthy) for index in range(cards))
    )


def recount(ledger: Ledger) -> Ledger:
    """Build a ledger anew from the truth that `ledger` stands for, as a restart does."""
    fresh = Ledger()
    for node in ledger.nodes:
        known = ledger.inventory(node)
        assert known is not None
        fresh.set_node(known)
    for holding in ledger.holdings():
        fresh.record(holding.uid, holding.node, holding.charges)
    return fresh


def test_a_reservation_beyond_capacity_is_refused_whole() -> None:
    """Where the second card of two is too full, the first is not touched either."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.assume("a", "n1", [Charge("GPU-n1-1", 600, 0, 1)])
    before = ledger.used.copy()
    with pytest.raises(OverCapacityError):
        ledger.assume("b", "n1", [Charge("GPU-n1-0", 600, 0, 1), Charge("GPU-n1-1", 600, 0, 1)])
    assert np.array_equal(ledger.used, before)
    assert ledger.holding("b") is None


def test_a_card_belongs_to_one_node() -> None:
    """Two nodes that report the same card would let it be given out twice."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    with pytest.raises(AllocationError, match="GPU-n1-0"):
        ledger.set_node(NodeInventory("n2", inventory("n1").cards))
    assert ledger.nodes == ("n1",)


def test_pods_count_even_if_they_were_seen_before_their_cards() -> None:
    """At a start pods and inventories arrive in any order."""
    ledger = Ledger()
    ledger.record("a", "n1", [Charge("GPU-n1-0", 600, 100, 1)])
    ledger.set_node(inventory("n1"))
    assert ledger.used[0].sum() == 600


def test_what_a_pod_holds_survives_its_node() -> None:
    """A node that goes and comes back has the same shares in use."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    ledger.record("a", "n1", [Charge("GPU-n1-0", 600, 100, 1)])
    ledger.drop_node("n1")
    assert ledger.used.sum() == 0
    ledger.set_node(inventory("n1"))
    assert ledger.used[0].sum() == 600


def test_a_confirmed_share_is_not_forgotten() -> None:
    """`forget` undoes assumptions only: a late failure report cannot free the cards of a running pod."""
    ledger = Ledger()
    ledger.set_node(inventory("n1"))
    charges = (Charge("GPU-n1-0", 600, 100, 1),)
    ledger.assume("a", "n1", charges)
    ledger.record("a", "n1", charges)
    ledger.forget("a")
    assert ledger.holding("a") is not None
    assert ledger.used[0].sum() == 600


def test_a_node_may_have_more_cards_than_any_before() -> None:
    """Columns grow with what is reported; rows grow with the fleet."""
    ledger = Ledger(rows=1, cards=1)
    for node in ("n1", "n2", "n3"):
        ledger.set_node(inventory(node, cards=5))
    ledger.set_node(inventory("n2", cards=16))
    assert ledger.present.sum() == 26


class Life(RuleBasedStateMachine):
    """Random lives of a ledger: nodes come and go, pods are placed, confirmed, forgotten and released."""

    pods: Bundle[str] = Bundle("pods")
    nodes = st.sampled_from(["n1", "n2", "n3"])

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(rows=1, cards=1)
        self.serial = 0

    @rule(node=nodes, cards=st.integers(1, 4), memory=st.sampled_from([1000, 2000]), healthy=st.booleans())
    def report(self, node: str, cards: int, memory: int, *, healthy: bool) -> None:
        """An agent reports, possibly other cards than before."""
        if not any(True for _ in self.ledger.holdings(node)):
            self.ledger.set_node(inventory(node, cards, memory=memory, healthy=healthy))

    @rule(node=nodes)
    def lose(self, node: str) -> None:
        """A node leaves; its pods are deleted with it."""
        for holding in tuple(self.ledger.holdings(node)):
            self.ledger.release(holding.uid)
        self.ledger.drop_node(node)

    @rule(
        target=pods,
        count=st.integers(1, 2),
        memory=st.one_of(st.none(), st.integers(0, 1200)),
        cores=st.sampled_from([0, 300, 600, 1000]),
        init=st.booleans(),
    )
    def put(self, count: int, memory: int | None, cores: int, *, init: bool) -> object:
        """A pod is decided and reserved."""
        containers = [_container("main", Kind.REGULAR, count, memory, cores)]
        if init:
            containers.insert(0, _container("init", Kind.INIT, 1, 500, 0))
        request = PodRequest(tuple(containers))
        before = self.ledger.used.copy()
        outcome = place(self.ledger, request, ["n1", "n2", "n3"], constraints=CONSTRAINTS)
        assert np.array_equal(self.ledger.used, before), "deciding changes nothing"
        if not isinstance(outcome, Placement):
            for node, rejection in outcome.rejections.items():
                known = self.ledger.inventory(node)
                if rejection.counts:
                    assert known is not None
                    assert sum(rejection.counts.values()) == len(known.cards), "one reason per card"
            return multiple()
        self.serial += 1
        uid = f"pod-{self.serial}"
        self.ledger.assume(uid, outcome.allocation.node, outcome.charges)
        return uid

    @rule(uid=pods)
    def confirm(self, uid: str) -> None:
        """The watch shows the pod with its node."""
        holding = self.ledger.holding(uid)
        if holding is not None:
            self.ledger.record(uid, holding.node, holding.charges)
            assert not next(each for each in self.ledger.holdings() if each.uid == uid).assumed

    @rule(uid=consumes(pods))
    def undo(self, uid: str) -> None:
        """The Binding failed: assume and forget together change nothing."""
        holding = self.ledger.holding(uid)
        if holding is None or not holding.assumed:
            return
        self.ledger.forget(uid)
        free = self.ledger.used.copy()
        self.ledger.assume(uid, holding.node, holding.charges)
        self.ledger.forget(uid)
        assert np.array_equal(self.ledger.used, free)

    @rule(uid=consumes(pods))
    def end(self, uid: str) -> None:
        """The pod is gone; being told so twice is the same as once."""
        self.ledger.release(uid)
        self.ledger.release(uid)

    @invariant()
    def no_card_is_over_capacity(self) -> None:
        """I1."""
        assert (self.ledger.used <= self.ledger.total).all()
        assert (self.ledger.used >= 0).all()

    @invariant()
    def a_restart_gives_the_same(self) -> None:
        """I6: a recount from inventory and pods equals what was kept by difference."""
        fresh = recount(self.ledger)
        for node in self.ledger.nodes:
            mine, other = self.ledger.row(node), fresh.row(node)
            width = len((self.ledger.inventory(node) or inventory(node)).cards)
            assert np.array_equal(self.ledger.used[:, mine, :width], fresh.used[:, other, :width])
            assert np.array_equal(self.ledger.total[:, mine, :width], fresh.total[:, other, :width])


def _container(name: str, kind: Kind, count: int, memory: int | None, cores: int) -> ContainerRequest:
    return ContainerRequest(name, kind, name, count, memory, 0 if memory is not None else 40, cores)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40)
