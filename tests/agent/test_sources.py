"""Which source is asked, and what `CUDA_VISIBLE_DEVICES` means."""

from pathlib import Path

import pytest

from agent import sources
from agent.inventory import InventoryError
from agent.report import NodeReport
from agent.settings import AgentSettings, DefaultCard
from agent.visible_devices import entries
from tests.nvml.stub import DRIVER_NOT_LOADED, Hardware, cards


def _read(settings: AgentSettings, *, visible: str | None = None) -> NodeReport:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with sources.opened(settings, node="n1", environment=environment, wake=lambda: None) as source:
        return source.read()["n1"]


def _indexes(report: NodeReport) -> list[int]:
    return [device.card.index for device in report.devices]


def _no_driver(hardware: Hardware) -> None:
    hardware.lines.append(f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    hardware.write()


def test_configuration_comes_first(hardware: Hardware, tmp_path: Path) -> None:
    """Three cards in the file, two in the variable and eight in the machine are three."""
    hardware.has(*cards(8))
    (tmp_path / "fleet.yaml").write_text("n1: {count: 3, memoryMiB: 100}")
    settings = AgentSettings(fleet_file=str(tmp_path / "fleet.yaml"))
    assert _indexes(_read(settings, visible="0,1")) == [0, 1, 2]


def test_the_variable_comes_second(hardware: Hardware) -> None:
    """Two cards in the variable and eight in the machine are two, and they are the machine's."""
    hardware.has(*cards(8))
    report = _read(AgentSettings(), visible="0,1")
    assert [device.card.uuid for device in report.devices] == ["GPU-0", "GPU-1"]
    assert report.driver_version == "570.86.15"


def test_nvml_comes_last(hardware: Hardware) -> None:
    """Where nobody decided anything, all eight cards of the machine are reported."""
    hardware.has(*cards(8))
    assert _indexes(_read(AgentSettings())) == list(range(8))


def test_nothing_is_no_cards_and_a_warning(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    """A machine without a driver has no cards, and the log says why."""
    _no_driver(hardware)
    assert _read(AgentSettings()) == NodeReport("n1")
    assert "NVML of node n1: it cannot be used: nvmlInit: Driver Not Loaded" in caplog.text


@pytest.mark.parametrize("value", ["", "-1", " ", "-1,0"])
def test_an_empty_variable_hides_every_card(hardware: Hardware, value: str) -> None:
    """Empty and -1 mean none, as CUDA has it; that is a decision, not a missing one."""
    hardware.has(*cards(2))
    assert _read(AgentSettings(), visible=value) == NodeReport("n1")


def test_the_variable_is_read_as_cuda_does() -> None:
    """Entries are separated by commas, -1 ends them, and none counts twice."""
    assert entries("1, 0,1,GPU-a,-1,2") == ("1", "0", "GPU-a")


def test_entries_may_be_uuids_or_their_beginnings(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    """Cards keep NVML's indexes; an entry that names no card, or several, takes none and is told."""
    hardware.has(*cards(12))
    assert _indexes(_read(AgentSettings(), visible="GPU-11,2,7")) == [2, 7, 11]
    assert _indexes(_read(AgentSettings(), visible="GPU-1,3,99,MIG-x")) == [3]
    assert "not exactly one card is called GPU-1, 99, MIG-x" in caplog.text


def test_without_nvml_the_variable_only_counts(hardware: Hardware) -> None:
    """What a card is comes from the configuration then; indexes and UUIDs stay those that were named."""
    _no_driver(hardware)
    settings = AgentSettings(default_card=DefaultCard(memory_mib=40960, model="NVIDIA A100"), slots=3)
    report = _read(settings, visible="5,2")
    assert [(device.card.index, device.card.uuid) for device in report.devices] == [(2, "GPU-n1-2"), (5, "GPU-n1-5")]
    assert {(card.memory_mib, card.model, card.slots) for card in report.inventory.cards} == {(40960, "NVIDIA A100", 3)}
    named = _read(settings, visible="GPU-b,GPU-a")
    assert [(device.card.index, device.card.uuid) for device in named.devices] == [(0, "GPU-b"), (1, "GPU-a")]


def test_without_nvml_and_configuration_there_are_no_cards(
    hardware: Hardware, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows the memory of a card that is only counted, so none is made up, and the remedy is told."""
    _no_driver(hardware)
    assert _read(AgentSettings(), visible="0,1") == NodeReport("n1")
    assert "set agent.default_card.memory_mib or write a fleet file" in caplog.text


def test_hardware_needs_the_name_of_its_node() -> None:
    """Cards are never published under a guessed name."""
    with (
        pytest.raises(InventoryError, match=r"set --node-name or \$NODE_NAME, or name a fleet file"),
        sources.opened(AgentSettings(), node="", environment={}, wake=lambda: None),
    ):
        pytest.fail("opened")
