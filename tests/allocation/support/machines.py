"""The connections of the cards of known machines, as the agents of these machines report them.

The facts come from public documentation, named for each machine. Bandwidth is in GB/s (10⁹ bytes) in one direction: an
NVLink is 25.781 GB/s on a V100, 25 on an A100 and 26.562 on an H100, as `nvidia-smi nvlink -s` shows it; NVIDIA's data
sheets add up both directions, without the overhead of the protocol. `tests/nvml/machines.py` has the same machines as
NVML describes them.
"""

from allocation.topology.layout import CardLinks, PeerLink

DGX1_LINKS = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
"""How many NVLinks join each pair of cards of a DGX-1 with V100."""


def dgx1_v100() -> tuple[CardLinks, ...]:
    """Return eight V100 with six NVLinks each in a hybrid cube mesh.

    A pair has no link, one (25 GB/s) or two (51 GB/s). Two cards share a PCIe switch, and four a CPU. Sources: "NVIDIA
    DGX-1 With Tesla V100 System Architecture" (WP-08437), and `nvidia-smi topo -m` of the machine.
    """
    bandwidth = {1: 25, 2: 51}
    return tuple(
        CardLinks(
            index=index,
            numa=index // 4,
            island="nvlink-0",
            bandwidth_gbps=154,
            peers=tuple(PeerLink(other, bandwidth[count]) for other, count in enumerate(row) if count),
            pcie=(index // 4 * 4, index // 4 * 4, index // 2 * 2, index // 2 * 2),
        )
        for index, row in enumerate(DGX1_LINKS)
    )


def dgx_a100() -> tuple[CardLinks, ...]:
    """Return eight A100 with twelve NVLinks each to NVSwitches: 300 GB/s, 600 in both directions.

    Two cards share the PCIe switches of one of eight NUMA nodes. Sources: "NVIDIA DGX A100 System Architecture"
    (WP-10083), and `nvidia-smi topo -m` of the machine (https://github.com/NVIDIA/nccl/issues/1505).
    """
    first = [index // 2 * 2 for index in range(8)]
    return tuple(
        CardLinks(index, numa, "nvlink-0", 300, pcie=(first[index],) * 3 + (index,))
        for index, numa in enumerate((3, 3, 1, 1, 7, 7, 5, 5))
    )


def dgx_h100() -> tuple[CardLinks, ...]:
    """Return eight H100 with 18 NVLinks each to NVSwitches: 478 GB/s, 900 in both directions in the data sheet.

    Four cards share a CPU, and each has a host bridge of its own. Sources: "NVIDIA
    DGX H100/H200 User Guide", and `nvidia-smi topo -m` of the machine.
    """
    return tuple(
        CardLinks(index, index // 4, "nvlink-0", 478, pcie=(index // 4 * 4, *(index,) * 3)) for index in range(8)
    )


def pcie_pairs(count: int = 8) -> tuple[CardLinks, ...]:
    """Return `count` A100 as PCIe cards, an even number, of which two neighbours each have NVLink bridges.

    Three bridges have the twelve links of an A100: 300 GB/s to the other card of the pair and to no further one. The
    first half of the pairs is on one CPU, the second half on the other. Source: "NVIDIA A100 80GB PCIe Product Brief"
    (PB-10577).
    """
    half = (count // 2 + 1) // 2 * 2
    return tuple(
        CardLinks(
            index=index,
            numa=index // half,
            island=f"nvlink-{index // 2 * 2}",
            bandwidth_gbps=300,
            peers=(PeerLink(index ^ 1, 300),),
            pcie=(index // half * half, *(index // 2 * 2,) * 3),
        )
        for index in range(count)
    )


def islands_2_2() -> tuple[CardLinks, ...]:
    """Return four cards in two islands of two, which is the shape of AMD's MI210 in hives of two.

    Three links of 50 GB/s join the cards of an island. The four cards share a CPU, and the islands cross its PCIe
    switches. Source: "AMD Instinct MI210 Accelerator" (data sheet), 300 GB/s in both directions between two cards.
    """
    return tuple(
        CardLinks(
            index=index,
            numa=0,
            island=f"nvlink-{index % 2}",
            bandwidth_gbps=150,
            peers=(PeerLink((index + 2) % 4, 150),),
            pcie=(0, 0, index // 2 * 2, index // 2 * 2),
        )
        for index in range(4)
    )


def pcie_only() -> tuple[CardLinks, ...]:
    """Return eight cards without NVLink, four for each of two CPUs, two for each PCIe switch.

    Source: the product brief of NVIDIA's L40S, a card without NVLink; the rest is the usual design of a server with
    eight such cards and two PCIe switches for each CPU.
    """
    return tuple(CardLinks(index, index // 4, pcie=(index // 4 * 4,) * 2 + (index // 2 * 2,) * 2) for index in range(8))


def example_node() -> tuple[CardLinks, ...]:
    """Return the example of ziwon's documentation: cards 0 to 3 are an island at 600 GB/s, 4 to 7 one at 64 GB/s."""
    return tuple(
        CardLinks(index, island=f"nvlink-{index // 4 * 4}", bandwidth_gbps=600 if index < 4 else 64)
        for index in range(8)
    )
