"""What a container could have on a node, for the comparison of its set with a better one."""

import msgspec

from allocation.constraints import Constraints, read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement import card_verdicts, set_comparison
from allocation.placement.query import PlacementQuery
from allocation.request import PodRequest
from allocation.settings import AllocationSettings
from allocation.topology.comparison import Comparison
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import CardLinks, of_links
from tests.allocation.support import machines
from tests.allocation.support.builders import container, mixed, pod, whole
from tests.allocation.support.mig_cards import instance, mig_card


def ledger_of(machine: tuple[CardLinks, ...]) -> Ledger:
    """Return a ledger with node n0."""
    cards = tuple(Card(f"GPU-{each.index}", each.index, 80_000, numa=each.numa) for each in machine)
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", cards, of_links(machine)))
    return ledger


def constraints(demand: TopologyDemand | None, **changes: object) -> Constraints:
    """Return the constraints of a pod with a demand."""
    return msgspec.structs.replace(read_constraints({}, AllocationSettings()), topology=demand, **changes)


def compared(ledger: Ledger, request: PodRequest, wanted: Constraints) -> dict[str, Comparison | None]:
    """Return the comparison for each container on n0, by its name."""
    row = ledger.row("n0")
    assert row is not None
    return {
        trial.container: set_comparison.compare(
            ledger, row, trial, count=request.container(trial.container).count, constraints=wanted
        )
        for trial in card_verdicts.fitting(ledger, PlacementQuery(request, wanted), "n0")
    }


def test_cards_of_earlier_containers_are_not_free() -> None:
    """The first container has the fast island, so that the second has the slow one."""
    two = pod(container("a", count=4, memory=70_000), container("b", count=4, memory=70_000))
    found = compared(ledger_of(machines.example_node()), two, constraints(TopologyDemand()))
    first, second = found["a"], found["b"]
    assert first is not None
    assert first.better is None
    assert second is not None
    assert second.chosen is not None
    assert second.better is not None
    assert (second.chosen.bandwidth_gbps, second.better.bandwidth_gbps) == (64, 600)
    assert second.missing == (0, 1, 2, 3)


def test_cards_of_one_numa_node_are_compared_with_that_node_only() -> None:
    """The card policy chooses the NUMA node, so that a faster one is not what the pod missed."""
    machine = tuple(CardLinks(index, index // 4, "ab"[index // 4], (64, 600)[index // 4]) for index in range(8))
    ledger = ledger_of(machine)
    bound = compared(ledger, pod(whole(2)), constraints(TopologyDemand(), numa_bind=True))["main"]
    assert bound is not None
    assert bound.chosen is not None
    assert (bound.chosen.bandwidth_gbps, bound.better) == (64, None)
    free = compared(ledger, pod(whole(2)), constraints(TopologyDemand()))["main"]
    assert free is not None
    assert free.chosen is not None
    assert (free.chosen.bandwidth_gbps, free.better) == (600, None)


def test_mig_instances_are_not_compared() -> None:
    """They have no links; nor has a pod without a demand any set."""
    ledger = mixed(mig_card(0), instance(0, "1g.5gb", 0), instance(0, "1g.5gb", 1))
    request = pod(container(count=1, memory=1000))
    assert compared(ledger, request, constraints(TopologyDemand("linked"))) == {"main": None}
    assert compared(ledger_of(machines.pcie_only()), request, constraints(None)) == {"main": None}
