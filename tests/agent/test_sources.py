"""Selection of the inventory source, and the meaning of `CUDA_VISIBLE_DEVICES`."""

from pathlib import Path

import pytest

from agent import sources
from agent.inventory import InventoryError
from agent.nvml.visible_devices import entries
from agent.report import NodeReport
from agent.settings import AgentSettings, DefaultCard
from allocation.topology.layout import NUMA_UNKNOWN
from cluster.gpu_node_status import GpuNodeStatus, NodeProblem
from cluster.metadata import ObjectMeta
from tests.nvml import machines
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


def test_fleet_file_takes_precedence(hardware: Hardware, tmp_path: Path) -> None:
    """With three cards in the file, two in the variable and eight in the machine, three are reported."""
    hardware.has(*cards(8))
    (tmp_path / "fleet.yaml").write_text("n1: {count: 3, memoryMiB: 100}")
    settings = AgentSettings(fleet_file=str(tmp_path / "fleet.yaml"))
    assert _indexes(_read(settings, visible="0,1")) == [0, 1, 2]


def test_variable_takes_precedence_over_nvml(hardware: Hardware) -> None:
    """With two cards in the variable and eight in the machine, two of the machine's are reported."""
    hardware.has(*cards(8))
    report = _read(AgentSettings(), visible="0,1")
    assert [device.card.uuid for device in report.devices] == ["GPU-0", "GPU-1"]
    assert report.driver_version == "570.86.15"


def test_nvml_is_the_default_source(hardware: Hardware) -> None:
    """Without a fleet file and the variable, all eight cards of the machine are reported."""
    hardware.has(*cards(8))
    assert _indexes(_read(AgentSettings())) == list(range(8))


def test_missing_driver_means_no_cards_and_a_warning(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    """A machine without a driver has no cards, and the log gives the reason."""
    _no_driver(hardware)
    problem = NodeProblem("DriverMissing", "nvmlInit: Driver Not Loaded")
    assert _read(AgentSettings()) == NodeReport("n1", problem=problem)
    assert "NVML of node n1: not available: nvmlInit: Driver Not Loaded" in caplog.text


@pytest.mark.parametrize("value", ["", "-1", " ", "-1,0"])
def test_empty_variable_hides_every_card(hardware: Hardware, value: str) -> None:
    """As in CUDA, an empty value and -1 mean no card; only an unset variable means all cards."""
    hardware.has(*cards(2))
    problem = NodeProblem("NoCards", "CUDA_VISIBLE_DEVICES of the agent names no card")
    assert _read(AgentSettings(), visible=value) == NodeReport("n1", problem=problem)


def test_variable_is_parsed_like_cuda() -> None:
    """Commas separate entries, -1 ends the list, and duplicates count once."""
    assert entries("1, 0,1,GPU-a,-1,2") == ("1", "0", "GPU-a")


def test_variable_accepts_uuids_and_their_prefixes(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    """Cards keep NVML's indexes; an entry that names no card, or several, is ignored with a warning."""
    hardware.has(*cards(12))
    assert _indexes(_read(AgentSettings(), visible="GPU-11,2,7")) == [2, 7, 11]
    assert _indexes(_read(AgentSettings(), visible="GPU-1,3,99,MIG-x")) == [3]
    assert "ignored entries: GPU-1, 99, MIG-x; each must name exactly one card" in caplog.text


def test_links_to_hidden_cards_stay_reported(hardware: Hardware) -> None:
    """Without them a card whose only peer is hidden would look like one behind a switch."""
    hardware.has(*machines.pcie_pairs(4))
    report = _read(AgentSettings(), visible="0,2,3")
    status = GpuNodeStatus(ObjectMeta(name="n1"), report.status())
    assert status.inventory().layout.bandwidth == ((300, 0, 0), (0, 300, 300), (0, 300, 300))


def test_without_nvml_settings_describe_the_cards_of_the_variable(hardware: Hardware) -> None:
    """The indexes and UUIDs are those of the variable, everything else comes from the settings."""
    _no_driver(hardware)
    settings = AgentSettings(default_card=DefaultCard(memory_mib=40960, model="NVIDIA A100"), slots=3)
    report = _read(settings, visible="5,2")
    assert [(device.card.index, device.card.uuid) for device in report.devices] == [(2, "GPU-n1-2"), (5, "GPU-n1-5")]
    assert {(card.memory_mib, card.model, card.slots) for card in report.inventory.cards} == {(40960, "NVIDIA A100", 3)}
    assert {card.numa for card in report.inventory.cards} == {NUMA_UNKNOWN}
    named = _read(settings, visible="GPU-b,GPU-a")
    assert [(device.card.index, device.card.uuid) for device in named.devices] == [(0, "GPU-b"), (1, "GPU-a")]


def test_without_nvml_and_settings_there_are_no_cards(hardware: Hardware, caplog: pytest.LogCaptureFixture) -> None:
    """The memory of the cards is unknown, so the agent reports none and logs the remedy."""
    _no_driver(hardware)
    problem = NodeProblem("DriverMissing", "nvmlInit: Driver Not Loaded")
    assert _read(AgentSettings(), visible="0,1") == NodeReport("n1", problem=problem)
    assert "set agent.default_card.memory_mib or write a fleet file" in caplog.text


def test_hardware_source_needs_a_node_name() -> None:
    """The agent never publishes cards under a guessed name."""
    with (
        pytest.raises(InventoryError, match=r"set --node-name or \$NODE_NAME, or name a fleet file"),
        sources.opened(AgentSettings(), node="", environment={}, wake=lambda: None),
    ):
        pytest.fail("the source was opened")
