"""What `nvidia-smi` prints about the connections of cards, and the same from an agent's report."""

import re

from agent.report import DeviceReport

_ROW = re.compile(r"GPU\d+\t? *(.*)")
_UNDERLINE = re.compile(r"\x1b\[\d+m")
_CARD = re.compile(r"GPU \d+: .*\(UUID: (\S+)\)")
_LINK = re.compile(r"Link \d+: ([\d.]+) GB/s")

_PCIE = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""By how many of a card's groups two cards share: none, the NUMA node, the host bridge, the switches, the switch."""


def topology_matrix(text: str) -> list[list[str]]:
    """Return the cells of `nvidia-smi topo -m` between cards; the cell of a card with itself is `X`."""
    rows = [match[1].split() for line in text.splitlines() if (match := _ROW.match(_UNDERLINE.sub("", line).strip()))]
    rows = [row for row in rows if "X" in row]  # the header has the names of the columns only
    return [row[: len(rows)] for row in rows]


def link_speeds(text: str) -> dict[str, int]:
    """Return the MB/s of all active links of each card by UUID, from `nvidia-smi nvlink -s`."""
    speeds: dict[str, int] = {}
    uuid = ""
    for line in text.splitlines():
        if card := _CARD.search(line):
            uuid = card[1]
            speeds[uuid] = 0
        elif link := _LINK.search(line):
            speeds[uuid] += round(float(link[1]) * 1000)
    return speeds


def matches(cell: str, one: DeviceReport, other: DeviceReport) -> bool:
    """Return whether a cell of `topo -m` agrees with what the agent reports about two cards.

    The cell has the kind of the best connection: for linked cards not how near they are on PCIe.
    """
    if one.links or other.links:
        is_linked = other.card.index in {link.id for link in one.links}
    else:
        is_linked = one.island != "" and one.island == other.island
    if cell.startswith("NV"):
        return is_linked
    if is_linked:
        return False
    if not (one.pcie_groups and other.pcie_groups):
        return True  # NVML knows no levels here
    same = [first == second for first, second in zip(one.pcie_groups, other.pcie_groups, strict=True)]
    return cell == _PCIE[same.index(False) if False in same else len(same)]
