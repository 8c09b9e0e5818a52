"""What the agent reports about known machines, from NVML to the layout with which the scheduler decides."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from agent.nvml.source import NvmlSource
from agent.report import NodeReport
from agent.settings import AgentSettings
from allocation.topology.layout import CROSS_NUMA, LINKED, SAME_NUMA, CardLinks, Layout, PeerLink, of_links
from cluster.gpu_node_status import GpuNodeStatus, Status
from cluster.metadata import ObjectMeta
from tests.agent.conftest import Clock
from tests.allocation.support import machines as reported
from tests.nvml import machines, nvidia_smi
from tests.nvml.stub import A100_MIG, Hardware, MigInstances, StubCard


@pytest.fixture
def report(hardware: Hardware, tmp_path: Path) -> Callable[[list[StubCard]], NodeReport]:
    """Return a function that reports a machine."""

    def read(cards: list[StubCard]) -> NodeReport:
        hardware.has(*cards)
        settings = AgentSettings(sysfs=str(tmp_path / "sys"))
        with NvmlSource(node="n1", settings=settings, wake=lambda: None, clock=Clock()) as source:
            return source.read()["n1"]

    return read


def published(report: NodeReport) -> Status:
    """Return the report as the API server stores it."""
    return msgspec.json.decode(msgspec.json.encode(report.status()), type=Status)


def layout(report: NodeReport) -> Layout:
    """Return the layout that the scheduler reads."""
    return GpuNodeStatus(ObjectMeta(name="n1"), published(report)).inventory().layout


def links(report: NodeReport) -> tuple[CardLinks, ...]:
    """Return what the scheduler reads about the connections of each card."""
    return tuple(device.card_links() for device in published(report).devices)


@pytest.mark.parametrize(
    ("hardware_of", "links_of"),
    [
        (machines.dgx1_v100, reported.dgx1_v100),
        (machines.dgx_a100, reported.dgx_a100),
        (machines.dgx_h100, reported.dgx_h100),
        (machines.pcie_pairs, reported.pcie_pairs),
        (lambda: machines.pcie_pairs(4), lambda: reported.pcie_pairs(4)),
        (machines.islands_2_2, reported.islands_2_2),
        (machines.pcie_only, reported.pcie_only),
    ],
    ids=["dgx1-v100", "dgx-a100", "dgx-h100", "8-in-pairs", "4-in-pairs", "islands-2-2", "pcie-only"],
)
def test_known_machine_has_its_layout(
    report: Callable[[list[StubCard]], NodeReport],
    hardware_of: Callable[[], list[StubCard]],
    links_of: Callable[[], tuple[CardLinks, ...]],
) -> None:
    """The scheduler reads the connections that the machine's documentation describes."""
    read = report(hardware_of())
    assert links(read) == links_of()
    assert layout(read) == of_links(links_of())


def test_hybrid_cube_mesh_is_reported_pair_by_pair(report: Callable[[list[StubCard]], NodeReport]) -> None:
    """Written out by hand: two links are 51 GB/s, one is 25 GB/s, and six of a card's seven pairs differ by tier."""
    read = layout(report(machines.dgx1_v100()))
    assert read.bandwidth == (
        (154, 25, 25, 51, 51, 0, 0, 0),
        (25, 154, 51, 25, 0, 51, 0, 0),
        (25, 51, 154, 51, 0, 0, 25, 0),
        (51, 25, 51, 154, 0, 0, 0, 25),
        (51, 0, 0, 0, 154, 25, 25, 51),
        (0, 51, 0, 0, 25, 154, 51, 25),
        (0, 0, 25, 0, 25, 51, 154, 51),
        (0, 0, 0, 25, 51, 25, 51, 154),
    )
    near, far = SAME_NUMA, CROSS_NUMA
    assert read.tiers == (
        (LINKED, LINKED, LINKED, LINKED, LINKED, far, far, far),
        (LINKED, LINKED, LINKED, LINKED, far, LINKED, far, far),
        (LINKED, LINKED, LINKED, LINKED, far, far, LINKED, far),
        (LINKED, LINKED, LINKED, LINKED, far, far, far, LINKED),
        (LINKED, far, far, far, LINKED, LINKED, LINKED, LINKED),
        (far, LINKED, far, far, LINKED, LINKED, LINKED, LINKED),
        (far, far, LINKED, far, LINKED, LINKED, LINKED, LINKED),
        (far, far, far, LINKED, LINKED, LINKED, LINKED, LINKED),
    )
    assert read.numa_tiers[0] == (LINKED, near, near, near, far, far, far, far)
    assert read.islands == (0,) * 8


NVIDIA_SMI_DGX1 = """
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tCPU Affinity\x1b[0m
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\t0-19,40-59
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\t0-19,40-59
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\t0-19,40-59
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\t20-39,60-79
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\t20-39,60-79
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\t20-39,60-79
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\t20-39,60-79
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X
"""
"""`nvidia-smi topo -m` of a DGX-1 with V100: its cards, and one of its adapters."""


def test_report_agrees_with_nvidia_smi(report: Callable[[list[StubCard]], NodeReport]) -> None:
    """Every pair of a DGX-1 is as `nvidia-smi` prints it, and any other cell for a pair would be noticed."""
    devices = report(machines.dgx1_v100()).devices
    cells = nvidia_smi.topology_matrix(NVIDIA_SMI_DGX1)
    kinds = ("NV1", "SYS", "NODE", "PHB", "PXB", "PIX")
    for one, other in permutations(range(8), 2):
        agreeing = [kind for kind in kinds if nvidia_smi.matches(kind, devices[one], devices[other])]
        assert agreeing == [cells[one][other].replace("NV2", "NV1")]


def test_speeds_of_nvidia_smi_are_read() -> None:
    """Inactive links have no speed."""
    text = """
GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-a)
\t Link 0: 25.781 GB/s
\t Link 1: <inactive>
\t Link 2: 25.781 GB/s
GPU 1: Tesla V100-SXM2-32GB (UUID: GPU-b)
"""
    assert nvidia_smi.link_speeds(text) == {"GPU-a": 51562, "GPU-b": 0}


def test_driver_that_reports_no_speed_has_that_of_its_version(
    report: Callable[[list[StubCard]], NodeReport],
) -> None:
    """A link of version 2.0 then counts as 25 GB/s without overhead; without a version it is a link of 0 GB/s."""
    cards = machines.dgx1_v100()
    for card in cards:
        card.lines.append("fields none")
    first = links(report(cards))[0]
    assert (first.bandwidth_gbps, [peer.bandwidth_gbps for peer in first.peers]) == (150, [25, 25, 50, 50])
    for card in cards:
        card.lines.remove("nvlink 2")
    first = links(report(cards))[0]
    assert (first.bandwidth_gbps, first.island, [peer.bandwidth_gbps for peer in first.peers]) == (
        0,
        "nvlink-0",
        [0] * 4,
    )


@pytest.mark.parametrize(("version", "gbps"), [(1, 20), (2, 25), (3, 25), (4, 25), (5, 25), (6, 25), (7, 50), (99, 0)])
def test_version_of_a_link_gives_its_speed(
    report: Callable[[list[StubCard]], NodeReport], version: int, gbps: int
) -> None:
    """NVML numbers the versions 1.0, 2.0, 2.2, 3.0, 3.1, 4.0 and 5.0; a version that is not known gives no speed."""
    cards = machines.pcie_pairs(2)
    for card in cards:
        card.lines = ["fields none", f"nvlink {version}", *(line for line in card.lines if line.startswith("link 0 "))]
    assert [each.peers for each in links(report(cards))] == [(PeerLink(1, gbps),), (PeerLink(0, gbps),)]


def test_links_behind_a_switch_are_of_no_pair(report: Callable[[list[StubCard]], NodeReport]) -> None:
    """A card of an NVSwitch machine reports no peers, also with a driver that gives only the switch's address."""
    cards = machines.dgx_a100()
    for card in cards:
        card.lines.append("error nvmlDeviceGetNvLinkRemoteDeviceType 13")
    read = report(cards)
    assert {(device.links, device.island, device.bandwidth_gbps) for device in read.devices} == {((), "nvlink-0", 300)}
    assert "links" not in msgspec.to_builtins(read.status().devices[0])


def test_machine_without_distances_reports_no_groups(report: Callable[[list[StubCard]], NodeReport]) -> None:
    """Where NVML knows no levels, NUMA nodes and links are all that is known."""
    cards = machines.pcie_only()
    for card in cards:
        card.lines = []
    read = report(cards)
    assert {device.pcie_groups for device in read.devices} == {()}
    assert "pcieGroups" not in msgspec.to_builtins(read.status().devices[0])
    assert layout(read) == of_links(reported.pcie_only())


def test_unknown_numa_nodes_follow_from_the_groups(report: Callable[[list[StubCard]], NodeReport]) -> None:
    """A card without a NUMA node is not reported as one of node 0; what NVML says about pairs tells nodes apart."""
    cards = machines.pcie_only()
    for card in cards:
        card.numa = -1
    read = report(cards)
    assert "numa" not in msgspec.to_builtins(read.status().devices[0])
    assert layout(read).numa == (-1,) * 8
    assert layout(read).numa_tiers == of_links(reported.pcie_only()).numa_tiers


def test_instances_of_a_card_have_no_links(report: Callable[[list[StubCard]], NodeReport], hardware: Hardware) -> None:
    """A card in MIG mode keeps its links in the report; the layout has only the other cards."""
    cards = machines.pcie_pairs(4)
    cards[0].lines += A100_MIG
    MigInstances(hardware).has("GPU-0 7 0 19 6 1 MIG-1")
    read = report(cards)
    whole, instance = read.devices[:2]
    assert (whole.links, whole.pcie_groups) == ((PeerLink(1, 300),), (0, 0, 0, 0))
    assert (instance.links, instance.pcie_groups, instance.island, instance.bandwidth_gbps) == ((), (), "", 0)
    assert layout(read).ids == (1, 2, 3)
    assert layout(read).bandwidth[0] == (300, 0, 0)
