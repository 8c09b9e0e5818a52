"""What other DRA drivers have allocated on our nodes is counted, or closes the node."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import SLOTS
from allocation.ledger.ledger import Ledger
from allocation.mig import MigInstance
from allocation.steps import finish
from cluster.api import Api
from cluster.dra import ResourceClaim, ResourceSlice
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.dra.foreign import DoubleBooking, ForeignDevices
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.comparison import differences
from tests.scheduler.support import dra
from tests.scheduler.support.builders import Clock, allocated, node, status
from tests.scheduler.support.builders import state as state_of

NODES = ("n0", "n1")
CARDS = 2


def slice_of(*arguments: Any, **more: Any) -> ResourceSlice:
    """Return a ResourceSlice of the other driver."""
    return msgspec.convert(dra.slice_of(*arguments, **more), ResourceSlice)


def claim(*arguments: Any, **more: Any) -> ResourceClaim:
    """Return a ResourceClaim for devices of the other driver."""
    return msgspec.convert(dra.claim(*arguments, **more), ResourceClaim)


class World:
    """A ledger of two nodes, the devices of another driver on them, and what was reported."""

    def __init__(self, *, drivers: tuple[str, ...] = (dra.DRIVER,)) -> None:
        self.ledger = Ledger()
        self.released = 0
        self.double: list[DoubleBooking] = []
        self.foreign = ForeignDevices(
            drivers, ledger=self.ledger, on_release=self.release, on_double_booked=self.double.append
        )
        for name in NODES:
            cards = tuple(Card(f"GPU-{name}-{index}", index, 1000, slots=4) for index in range(CARDS))
            self.ledger.set_node(NodeInventory(name, cards))

    def release(self) -> None:
        """Count the calls."""
        self.released += 1

    def used(self, name: str, card: int) -> int:
        """Return the slots of a card that are in use; 4 if it is held whole."""
        position = self.ledger.position(f"GPU-{name}-{card}")
        assert position is not None
        return self.ledger.used_lists(position[0])[SLOTS][position[1]]


def test_allocated_card_is_held_whole_until_the_claim_gives_it_back() -> None:
    """In whatever order slice and claim are seen."""
    for first in ("slice", "claim"):
        world = World()
        if first == "slice":
            world.foreign.set_slice(slice_of("n0", "GPU-n0-0", "GPU-n0-1"))
        world.foreign.set_claim(claim("c", "n0", "gpu-1"))
        world.foreign.set_slice(slice_of("n0", "GPU-n0-0", "GPU-n0-1"))
        assert (world.used("n0", 0), world.used("n0", 1)) == (0, 4)
        assert world.foreign.rejections == {}
        assert world.foreign.counts() == {"counted": 1}
        held = world.ledger.reservation("dra:default/c")
        assert held is not None
        assert not held.is_pod
        released = world.released
        world.foreign.set_claim(claim("c"), claim("c", "n0", "gpu-1"))
        assert (world.used("n0", 1), world.released) == (0, released + 1)
        assert world.foreign.counts() == {}


def test_claim_that_is_deleted_gives_its_card_back() -> None:
    """The API server shows the deletion only."""
    world = World()
    world.foreign.set_slice(slice_of("n0", "GPU-n0-0"))
    world.foreign.set_claim(claim("c", "n0", "gpu-0"))
    world.foreign.drop_claim(claim("c", "n0", "gpu-0"))
    assert (world.used("n0", 0), world.released) == (0, 1)


def test_other_drivers_and_shared_access_do_not_count() -> None:
    """A monitor with adminAccess takes nothing from others."""
    world = World()
    world.foreign.set_slice(slice_of("n0", "GPU-n0-0"))
    world.foreign.set_slice(slice_of("n1", "GPU-n1-0", driver="other"))
    world.foreign.set_claim(claim("admin", "n0", "gpu-0", admin=True))
    world.foreign.set_claim(claim("other", "n1", "gpu-0", driver="other"))
    assert [*world.ledger.reservations()] == []
    assert (world.foreign.rejections, world.foreign.counts()) == ({}, {})


def test_device_that_is_not_a_card_of_the_node_closes_it() -> None:
    """It has no UUID, or one that nothing reports, or that of another node; the reason says what to do."""
    for uuid in ("", "GPU-elsewhere", "GPU-n1-0"):
        world = World()
        world.foreign.set_slice(slice_of("n0", uuid))
        assert world.foreign.rejections == {}
        world.foreign.set_claim(claim("c", "n0", "gpu-0"))
        (rejection,) = world.foreign.rejections.values()
        assert (rejection.code, rejection.resolvable) == ("ForeignDraDriver", False)
        assert "ResourceClaim default/c" in rejection.message
        assert "default/c" not in rejection.public_text
        assert world.foreign.counts() == {"unknown": 1}
        assert world.used("n1", 0) == 0
        world.foreign.drop_claim(claim("c"))
        assert world.foreign.rejections == {}


def test_instance_of_a_card_closes_the_node() -> None:
    """The driver may make further instances of the card at any time."""
    world = World()
    mig = Card("MIG-0", 0, 500, slots=1, instance=MigInstance("GPU-n0-0", "1g.5gb"))
    world.ledger.set_node(NodeInventory("n0", (Card("GPU-n0-0", 0, 1000, mode="mig"), mig)))
    world.foreign.set_slice(slice_of("n0", "MIG-0"))
    world.foreign.set_claim(claim("c", "n0", "gpu-0"))
    assert [*world.foreign.rejections] == ["n0"]


def test_node_without_cards_of_ours_is_not_closed() -> None:
    """Another driver's own nodes do not concern us; they do when an agent reports their cards."""
    world = World()
    world.foreign.set_claim(claim("c", "n2", "gpu-0"))
    assert (world.foreign.rejections, world.foreign.counts()) == ({}, {})
    world.ledger.set_node(NodeInventory("n2", (Card("GPU-n2-0", 0, 1000, slots=4),)))
    world.foreign.refresh_node("n2")
    assert [*world.foreign.rejections] == ["n2"]
    world.foreign.set_slice(slice_of("n2", "GPU-n2-0"))
    assert world.foreign.rejections == {}
    assert world.used("n2", 0) == 4


def test_node_stays_closed_when_the_driver_withdraws_a_slice_in_use() -> None:
    """Its pods still use the cards; the pool has the name of the node."""
    world = World()
    world.foreign.set_slice(slice_of("n0", "GPU-n0-0"))
    world.foreign.set_claim(claim("c", "n0", "gpu-0"))
    world.foreign.drop_slice(slice_of("n0", "GPU-n0-0"))
    assert [*world.foreign.rejections] == ["n0"]


def test_latest_generation_of_a_pool_counts() -> None:
    """The slice of an earlier one may be deleted later."""
    world = World()
    world.foreign.set_claim(claim("c", "n0", "gpu-0"))
    world.foreign.set_slice(slice_of("n0", "GPU-n0-1", generation=2, name="new"))
    world.foreign.set_slice(slice_of("n0", "GPU-n0-0", name="old"))
    assert (world.used("n0", 0), world.used("n0", 1)) == (0, 4)


def test_card_that_pods_have_already_is_reported() -> None:
    """Once, when the claim gets it; the metric shows it as long as it lasts."""
    seen: list[DoubleBooking] = []
    state = ClusterState(
        settings=state_of().settings,
        make_queue=lambda _: state_of().queue,
        clock=Clock(),
        foreign_drivers=(dra.DRIVER,),
        on_double_booked=seen.append,
    )
    state.set_node(node("n0"))
    state.agent_reports.set(status("n0"))
    state.set_pod(allocated("p", node="n0", memory=100))
    state.foreign_devices.set_slice(slice_of("n0", "GPU-n0-0"))
    state.foreign_devices.set_claim(claim("c", "n0", "gpu-0"))
    state.foreign_devices.set_slice(slice_of("n0", "GPU-n0-0"))
    assert seen == [DoubleBooking("default", "c", "n0", "GPU-n0-0", ("uid-p",))]
    assert state.foreign_devices.counts() == {"double_booked": 1}


DEVICES = st.tuples(st.sampled_from(NODES), st.lists(st.sampled_from(("gpu-0", "gpu-1", "gpu-2")), max_size=3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from("abc"), DEVICES),
        st.tuples(st.just("slice"), st.sampled_from(NODES), st.integers(0, CARDS)),
        st.tuples(st.just("no slice"), st.sampled_from(NODES), st.none()),
        st.tuples(st.just("cards"), st.sampled_from(NODES), st.integers(0, CARDS)),
    ),
    max_size=20,
)


class Books:
    """A state, and which claim holds which device there, counted again after each change."""

    def __init__(self) -> None:
        self.state = state_of(foreign_drivers=(dra.DRIVER,))
        self.claims: dict[str, ResourceClaim] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.cards = dict.fromkeys(NODES, 0)
        for name in NODES:
            self.state.set_node(node(name))

    def change(self, what: str, name: str, how: Any) -> None:
        """Let a claim, a slice or the cards of a node change."""
        devices = self.state.foreign_devices
        if what == "claim":
            self.claims[name] = claim(name, how[0], *dict.fromkeys(how[1]))
            devices.set_claim(self.claims[name])
        elif what == "slice":
            made = slice_of(name, *(f"GPU-{name}-{number}" for number in range(how)))
            devices.set_slice(made, self.slices.get(name))
            self.slices[name] = made
        elif what == "no slice" and name in self.slices:
            devices.drop_slice(self.slices.pop(name))
        elif what == "cards":
            self.cards[name] = how
            self.state.agent_reports.set(status(name, cards=how))

    def expected(self) -> tuple[set[tuple[str, int]], set[str]]:
        """Return the cards that are held and the nodes that are closed."""
        held, closed = set(), set()
        for result in (result for each in self.claims.values() for result in each.devices):
            node_name, index = result.pool, int(result.device[-1])
            known = len(self.slices[node_name].spec.devices) if node_name in self.slices else 0
            if index < min(known, self.cards[node_name]):
                held.add((node_name, index))
            elif self.state.ledger.row(node_name) is not None:
                closed.add(node_name)
        return held, closed

    def actual(self) -> tuple[set[tuple[str, int]], set[str]]:
        """Return the same by the ledger."""
        cards = [(name, index) for name in NODES for index in range(self.cards[name])]
        held = {(name, index) for name, index in cards if self._slots(f"GPU-{name}-{index}")}
        return held, set(self.state.foreign_devices.rejections)

    def _slots(self, uuid: str) -> int:
        position = self.state.ledger.position(uuid)
        assert position is not None
        return self.state.ledger.used_lists(position[0])[SLOTS][position[1]]


@given(STEPS)
def test_ledger_has_what_claims_have_after_any_order_of_changes(steps: list[Any]) -> None:
    """Each device of a claim is held, or its node is closed; a recount finds no difference."""
    books = Books()
    for step in steps:
        books.change(*step)
        assert books.actual() == books.expected()
    pods = Informer(Api.__new__(Api), PODS, Pod)
    assert finish(differences(books.state, pods)) == []
