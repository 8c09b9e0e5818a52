"""What there is to share: usable cards of nodes that take pods, summed as nodes change."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.inventory import Card, NodeInventory
from allocation.names import CORDON
from cluster.gpu_node_status import Allocator, GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.fairness.capacity import Capacity
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import node, state, status
from tests.scheduler.support.worlds import World

CPU, MEMORY = 64_000, 256 << 30
"""Of each node."""
ALLOCATORS: tuple[Allocator, ...] = ("draining", "dra", "ledger")


def total(of: ClusterState) -> tuple[int, ...]:
    """Return the sums."""
    return of.fair_share.capacity.total()


def test_cards_and_what_their_nodes_have_are_summed() -> None:
    """Two nodes with two cards of 1,000 MiB and 4 slots each; the CPU of a node without cards does not count."""
    made = state("n0", "n1")
    made.set_node(node("plain"))
    assert total(made) == (4000, 4 * 1000, 16, 0, 2 * CPU, 2 * MEMORY)


def test_cards_that_take_no_pods_do_not_count() -> None:
    """An unhealthy card, or one that is cordoned, leaves the others, and the CPU of the node."""
    made = state("n0", "n1")
    made.agent_reports.set(status("n0", healthy=False))
    assert total(made)[:5] == (2000, 2000, 8, 0, 2 * CPU)
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {CORDON: "GPU-n1-0"}}))
    assert total(made)[:5] == (1000, 1000, 4, 0, 2 * CPU)


def test_a_cordoned_node_does_not_count() -> None:
    """Neither its cards nor its CPU, until it takes pods again."""
    made = state("n0", "n1")
    made.set_node(node("n1", spec={"unschedulable": True}), node("n1"))
    assert total(made) == (2000, 2000, 8, 0, CPU, MEMORY)
    made.set_node(node("n1"), node("n1", spec={"unschedulable": True}))
    assert total(made)[4] == 2 * CPU


def test_a_node_of_another_allocator_does_not_count() -> None:
    """Neither while it is drained, nor before it is known that its slice is gone; queues are ranked again each time."""
    made = state("n0", "n1")
    assert total(made)[0] == 4000
    for allocator in ALLOCATORS:
        made.agent_reports.set(_allocated_by("n1", allocator))
        assert total(made) == (2000, 2000, 8, 0, CPU, MEMORY), allocator
    made.node_allocators.open("n1")
    assert total(made)[4] == 2 * CPU


def test_a_card_in_mig_mode_counts_as_its_instances() -> None:
    """The card itself takes no pod."""
    made = state()
    made.set_node(node("n0"))
    made.agent_reports.set(_status("n0", mig_card(0), instance(0, "1g.5gb", 0), instance(0, "1g.5gb", 1)))
    assert total(made)[:3] == (2 * 4864, 2 * (1000 // 7), 2)


def test_a_node_that_is_gone_does_not_count() -> None:
    """Nor does one that reports no cards any more."""
    made = state("n0", "n1")
    made.drop_node(node("n0"))
    assert total(made) == (2000, 2000, 8, 0, CPU, MEMORY)
    made.agent_reports.drop(status("n1"))
    assert total(made) == (0, 0, 0, 0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_sums_are_those_that_reading_every_node_gives(seed: int) -> None:
    """Nodes, cards, cordons, allocators and reports change at random."""
    world, chance = World(seed), random.Random(seed)  # noqa: S311 -- a test
    for _ in range(8):
        name = f"n{chance.randint(0, 7)}"
        match chance.choice(("node", "status", "allocator", "open", "drop", "gone")):
            case "node":
                world.add_node(name)
            case "status":
                world.state.agent_reports.set(world.status(name))
            case "allocator":
                world.state.agent_reports.set(_allocated_by(name, chance.choice(ALLOCATORS)))
            case "open":
                world.state.node_allocators.open(name)
            case "drop":
                world.state.drop_node(node(name))
            case "gone":
                world.state.agent_reports.drop(status(name))
        assert total(world.state) == recounted(world.state)


def recounted(of: ClusterState) -> tuple[int, ...]:
    """Return the sums over every node, read again."""
    fresh = Capacity(of.ledger, of.node_cache, of_others=of.node_allocators.rejections)
    for name in of.node_cache.nodes:
        fresh.touch(name)
    return fresh.total()


def _allocated_by(name: str, allocator: Allocator) -> GpuNodeStatus:
    reported = status(name)
    assert reported.status is not None
    reported.status.allocator = allocator
    return reported


def _status(name: str, *cards: Card) -> GpuNodeStatus:
    return GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, cards)))
