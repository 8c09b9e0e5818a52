"""MIG in a fleet file: declared instances, and simulated ones on a wish."""

from pathlib import Path

import pytest

from agent.fleet import FleetFile, parse
from agent.inventory import InventoryError
from allocation.ledger import Ledger
from allocation.mig import MigInstance, Slices, Wish

FLEET = """
n1:
  - {index: 0, memoryMiB: 81920, mode: mig, instances: [{profile: 1g.10gb, start: 6}, {profile: 3g.40gb, start: 0}]}
  - {index: 1, memoryMiB: 81920}
  - {index: 2, memoryMiB: 81920, mode: mig, instancesBy: agent}
"""


def test_declared_instances_are_reported() -> None:
    """Each is a unit of its own with the memory and compute of its profile, and the ledger can take them."""
    report = parse(FLEET.encode(), file="f")["n1"]
    cards = {card.uuid: card for card in report.inventory.cards}
    assert list(cards) == ["GPU-n1-0", "MIG-GPU-n1-0-6-1", "MIG-GPU-n1-0-0-4", "GPU-n1-1", "GPU-n1-2"]
    assert [(each.name, each.memory_mib) for each in cards["GPU-n1-0"].mig_profiles] == [
        ("1g.10gb", 10240),
        ("2g.20gb", 20480),
        ("3g.40gb", 40960),
        ("4g.40gb", 40960),
        ("7g.80gb", 81920),
    ]
    unit = cards["MIG-GPU-n1-0-0-4"]
    assert (unit.memory_mib, unit.cores, unit.slots) == (40960, 428, 1)
    assert unit.instance == MigInstance("GPU-n1-0", "3g.40gb", Slices(0, 4), 1, 0)
    assert [card.instances_by for card in cards.values() if card.is_divided] == ["administrator", "agent"]
    assert report.is_dividing
    assert report.status().isolation == ["none", "mig"]
    Ledger().set_node(report.inventory)


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ("[{profile: 9g.1gb, start: 0}]", "one of 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"),
        (
            "[{profile: 1g.10gb, start: 7}]",
            "n1[0].instances[0].start holds '7': 1g.10gb may start at 0, 1, 2, 3, 4, 5, 6",
        ),
        ("[{profile: 4g.40gb, start: 0}, {profile: 1g.10gb, start: 3}]", "where no other instance lies"),
        ("[1g.10gb]", "an instance has a profile"),
        ("4", "it must be a list of MIG instances"),
    ],
)
def test_an_impossible_instance_is_refused(instances: str, expected: str) -> None:
    """With the place in the file, the value and what is allowed."""
    fleet = f"n1: [{{index: 0, memoryMiB: 81920, mode: mig, instances: {instances}}}]"
    with pytest.raises(InventoryError) as error:
        parse(fleet.encode(), file="f")
    assert expected in str(error.value)


@pytest.mark.parametrize("more", ["instances: [{profile: 1g.10gb, start: 6}]", "instancesBy: agent"])
def test_only_a_card_in_mig_mode_has_instances(more: str) -> None:
    """Elsewhere it is a mistake."""
    with pytest.raises(InventoryError, match="only a card in MIG mode has instances"):
        parse(f"n1: {{count: 2, memoryMiB: 81920, {more}}}".encode(), file="f")


def test_an_instance_is_simulated_on_a_wish(tmp_path: Path) -> None:
    """It is there from the next reading on, with the same UUID whenever it is made, and gone when it is destroyed."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    wish = Wish("pod/0", "GPU-n1-2", "2g.20gb", Slices(0, 2))
    for _ in range(2):
        fleet = FleetFile(path)
        fleet.create("n1", wish)
        (*_, card) = fleet.read()["n1"].inventory.cards
        assert (card.uuid, card.memory_mib) == ("MIG-GPU-n1-2-0-2", 20480)
        fleet.destroy("n1", wish)
        fleet.destroy("n1", wish)
        assert len(fleet.read()["n1"].devices) == 5
