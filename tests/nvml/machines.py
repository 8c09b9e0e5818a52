"""Known machines as the hardware of the NVML stub, with the PCI addresses and the speeds that their drivers report.

`tests/allocation/support/machines.py` names the sources, and says what the agent reports about each machine.
"""

from collections.abc import Sequence

from tests.allocation.support.machines import DGX1_LINKS
from tests.nvml.stub import MIB, StubCard

V100_LINK, A100_LINK, H100_LINK, OTHER_LINK = 25781, 25000, 26562, 50000
"""MB/s of one link in one direction."""


def dgx1_v100() -> list[StubCard]:
    """Return eight V100 whose links go to other cards."""
    buses = (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A)
    return [
        _card(
            index,
            buses,
            "Tesla V100-SXM2-32GB",
            32510,
            numa=index // 4,
            place=(index // 4, 0, index // 2, 0),
            links=_links([_address(buses[other]) for other, count in enumerate(row) for _ in range(count)], V100_LINK),
            version=2,
        )
        for index, row in enumerate(DGX1_LINKS)
    ]


def dgx_a100() -> list[StubCard]:
    """Return eight A100 with two links to each of six NVSwitches."""
    buses = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
    switches = [_address(bus) for bus in range(0xC4, 0xCA) for _ in range(2)]
    return [
        _card(
            index,
            buses,
            "NVIDIA A100-SXM4-40GB",
            40960,
            numa=numa,
            place=(numa, 0, 0, index),
            links=_links(switches, A100_LINK, kind="switch"),
            version=4,
        )
        for index, numa in enumerate((3, 3, 1, 1, 7, 7, 5, 5))
    ]


def dgx_h100() -> list[StubCard]:
    """Return eight H100 with five, four, four and five links to four NVSwitches."""
    buses = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
    switches = [_address(bus) for bus, count in zip(range(0x07, 0x0B), (5, 4, 4, 5), strict=True) for _ in range(count)]
    return [
        _card(
            index,
            buses,
            "NVIDIA H100 80GB HBM3",
            81559,
            numa=index // 4,
            place=(index // 4, index, 0, 0),
            links=_links(switches, H100_LINK, kind="switch"),
            version=6,
        )
        for index in range(8)
    ]


def pcie_pairs(count: int = 8) -> list[StubCard]:
    """Return `count` A100 as PCIe cards, of which two neighbours each have twelve links."""
    buses = range(0x10, 0x10 + count)
    half = (count // 2 + 1) // 2 * 2
    return [
        _card(
            index,
            buses,
            "NVIDIA A100 80GB PCIe",
            81920,
            numa=index // half,
            place=(index // half, index // 2, 0, 0),
            links=_links([_address(buses[index ^ 1])] * 12, A100_LINK),
            version=4,
        )
        for index in range(count)
    ]


def islands_2_2() -> list[StubCard]:
    """Return four cards in two islands; NVML lists no card of AMD, so it is their shape on another model."""
    buses = range(0x10, 0x14)
    return [
        _card(
            index,
            buses,
            "Card with three links",
            65536,
            numa=0,
            place=(0, 0, index // 2, 0),
            links=_links([_address(buses[(index + 2) % 4])] * 3, OTHER_LINK),
        )
        for index in range(4)
    ]


def pcie_only() -> list[StubCard]:
    """Return eight L40S, two for each of four PCIe switches."""
    return [
        _card(
            index,
            range(0x10, 0x18),
            "NVIDIA L40S",
            46068,
            numa=index // 4,
            place=(index // 4, 0, index // 2, 0),
        )
        for index in range(8)
    ]


def _address(bus: int) -> str:
    return f"00000000:{bus:02X}:00.0"


def _links(remotes: Sequence[str], mb_per_s: int, *, kind: str = "gpu") -> list[str]:
    return [f"link {number} {kind} {remote} {mb_per_s}" for number, remote in enumerate(remotes)]


def _card(
    index: int,
    buses: Sequence[int],
    name: str,
    memory_mib: int,
    *,
    numa: int,
    place: tuple[int, int, int, int],
    links: Sequence[str] = (),
    version: int = 0,
) -> StubCard:
    """Return a card; `place` is its NUMA node, host bridge, switches and switch, as the C file describes them."""
    return StubCard(
        f"GPU-{index}",
        name=name,
        memory=memory_mib * MIB,
        pci=_address(buses[index]),
        numa=numa,
        lines=[
            "topology {} {} {} {}".format(*place),
            *([f"nvlink {version}"] if version else []),
            *links,
        ],
    )
