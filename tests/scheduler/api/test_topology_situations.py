"""The five situations of a pod that demands connected cards, as explained on each recorded machine."""

import pytest

from scheduler.api.topology_types import MissingCard
from tests.allocation.support import machines
from tests.scheduler.support.connecting import Machine, cluster, demanding, set_of
from tests.scheduler.support.explaining import explained

MACHINES = {
    "dgx1": machines.dgx1_v100(),
    "a100": machines.dgx_a100(),
    "h100": machines.dgx_h100(),
    "pairs": machines.pcie_pairs(),
    "islands": machines.islands_2_2(),
    "pcie": machines.pcie_only(),
    "example": machines.example_node(),
}
on_each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
UNREACHABLE = 10_000
"""GB/s that no machine has."""


@on_each_machine
def test_the_best_set_was_chosen(machine: Machine) -> None:
    """On an idle machine no set is better than the chosen one."""
    made = cluster(machine)
    shown = set_of(explained(made, demanding(made, 2)))
    assert shown.better is None
    assert shown.text.endswith("; no set of 2 cards of the node is better")


@on_each_machine
def test_a_better_set_was_not_free(machine: Machine) -> None:
    """The text names the better set and each pod that holds one of its cards; what is left are only worse pairs."""
    made = cluster(machine, *((0, 1) if len(machine) == 4 else (0, 2, 4, 6)))
    shown = set_of(explained(made, demanding(made, 2)))
    assert shown.missing
    assert " would be better (" in shown.text
    for card in shown.missing:
        assert card.pods == (f"team/holds-{card.index}",)
        assert f"card {card.index} is held by team/holds-{card.index}" in shown.text


@on_each_machine
def test_a_required_set_was_not_free(machine: Machine) -> None:
    """Enough cards are free, but not the required ones: the pod waits for the pod that holds one of them."""
    made = cluster(machine, 1)
    explanation = explained(made, demanding(made, 2, prefer=[1, 2], mode="Required"))
    shown = set_of(explanation)
    assert explanation.resolvable
    assert explanation.nodes[0].counts["CardTopologyMismatch"] == len(machine) - 1
    assert shown.missing == (MissingCard(1, ("team/holds-1",)),)
    assert shown.text.startswith("the pod requires 2 cards out of cards 1,2; cards 1,2 would do (")
    assert shown.text.endswith("), but card 1 is held by team/holds-1")


@on_each_machine
def test_a_required_set_does_not_exist(machine: Machine) -> None:
    """No pod that ends helps."""
    made = cluster(machine, 0)
    explanation = explained(made, demanding(made, 2, mode="Required", min_bandwidth_gbps=UNREACHABLE))
    assert not explanation.resolvable
    shown = set_of(explanation)
    assert shown.text.startswith(
        f"the pod requires 2 cards in one island, linked at {UNREACHABLE} GB/s or more; the node has no such set among"
        " its usable cards, even if no pod held any of them; its best: cards "
    )
    assert shown.nearest is not None
    empty = cluster(machine)
    placed = set_of(explained(empty, demanding(empty, 2))).chosen
    assert placed is not None
    assert shown.nearest.bandwidth_gbps == placed.bandwidth_gbps
    assert f", less than the required {UNREACHABLE} GB/s)" in shown.text


@on_each_machine
def test_preferred_is_placed_anyway(machine: Machine) -> None:
    """With less bandwidth than preferred, or with some of the preferred cards."""
    made = cluster(machine, 1)
    slow = set_of(explained(made, demanding(made, 2, min_bandwidth_gbps=UNREACHABLE)))
    assert f", less than the preferred {UNREACHABLE} GB/s" in slow.text
    partly = set_of(explained(made, demanding(made, 2, prefer=[1, 2])))
    assert partly.chosen is not None
    assert 2 in partly.chosen.indexes
    assert ", 1 of 2 preferred cards" in partly.text
    assert partly.text.endswith("), but card 1 is held by team/holds-1")
