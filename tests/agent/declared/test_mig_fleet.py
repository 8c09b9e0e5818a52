"""MIG in a fleet file: declared instances, and instances that are simulated on request."""

from pathlib import Path

import pytest

from agent.declared.fleet import FleetFile, parse
from agent.inventory import InventoryError
from allocation.ledger.ledger import Ledger
from allocation.mig import InstanceRequest, MigInstance, Slices

FLEET = """
n1:
  - {index: 0, memoryMiB: 81920, mode: mig, instances: [{profile: 1g.10gb, start: 6}, {profile: 3g.40gb, start: 0}]}
  - {index: 1, memoryMiB: 81920}
  - {index: 2, memoryMiB: 81920, mode: mig, instancesBy: agent}
"""


def test_declared_instances_are_reported() -> None:
    """Each is a device with the memory and compute of its profile, and the ledger accepts it."""
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
    assert [card.instances_by for card in cards.values() if card.is_mig_enabled] == ["administrator", "agent"]
    assert report.creates_instances
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
        ("[{profile: 4g.40gb, start: 0}, {profile: 1g.10gb, start: 3}]", "must not overlap another instance"),
        ("[1g.10gb]", "an instance must have a profile"),
        ("4", "it must be a list of MIG instances"),
    ],
)
def test_impossible_declared_instance_is_rejected(instances: str, expected: str) -> None:
    """The message names the place in the file, the value and the allowed values."""
    fleet = f"n1: [{{index: 0, memoryMiB: 81920, mode: mig, instances: {instances}}}]"
    with pytest.raises(InventoryError) as error:
        parse(fleet.encode(), file="f")
    assert expected in str(error.value)


@pytest.mark.parametrize("more", ["instances: [{profile: 1g.10gb, start: 6}]", "instancesBy: agent"])
def test_instances_outside_mig_mode_are_rejected(more: str) -> None:
    """Both keys are errors on a card in another mode."""
    with pytest.raises(InventoryError, match="only a card in MIG mode has instances"):
        parse(f"n1: {{count: 2, memoryMiB: 81920, {more}}}".encode(), file="f")


def test_requested_instance_is_simulated(tmp_path: Path) -> None:
    """It exists from the next reading until it is destroyed, and has the same UUID whenever it is created."""
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    request = InstanceRequest("pod/0", "GPU-n1-2", "2g.20gb", Slices(0, 2))
    for _ in range(2):
        fleet = FleetFile(path)
        fleet.create("n1", request)
        (*_, card) = fleet.read()["n1"].inventory.cards
        assert (card.uuid, card.memory_mib) == ("MIG-GPU-n1-2-0-2", 20480)
        fleet.destroy("n1", request)
        fleet.destroy("n1", request)
        assert len(fleet.read()["n1"].devices) == 5
