"""Links, islands, NUMA nodes and PCIe groups of the cards of a fleet file."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.declared.fleet import parse
from agent.inventory import InventoryError
from agent.report import NodeReport
from allocation.topology.layout import CROSS_NUMA, LINKED, NUMA_UNKNOWN, SAME_NUMA, PeerLink
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta

DGX_1 = """
n1:
  count: 8
  memoryMiB: 32768
  numa: [0, 0, 0, 0, 1, 1, 1, 1]
  links: [[0, 1, 25], [0, 2, 25], [0, 3, 50], [0, 4, 50], [1, 2, 50], [1, 3, 25], [1, 5, 50], [2, 3, 50], [2, 6, 25],
    [3, 7, 25], [4, 5, 25], [4, 6, 25], [4, 7, 50], [5, 6, 50], [5, 7, 25], [6, 7, 50]]
"""


def _parse(text: str) -> NodeReport:
    return parse(text.encode(), file="f")["n1"]


def _numa(text: str) -> list[int]:
    return [card.numa for card in _parse(text).inventory.cards]


def test_hybrid_cube_mesh_can_be_declared() -> None:
    """A DGX-1 V100: six links a card, so that 150 GB/s leave each, and one island."""
    report = _parse(DGX_1)
    assert [(device.bandwidth_gbps, device.island) for device in report.devices] == [(150, "nvlink-0")] * 8
    layout = GpuNodeStatus(ObjectMeta("n1", "u"), report.status()).inventory().layout
    assert layout.bandwidth[0] == (150, 25, 25, 50, 50, 0, 0, 0)
    assert layout.tiers[0] == (*[LINKED] * 5, *[CROSS_NUMA] * 3)


def test_compact_form_declares_islands_and_numa_nodes_per_card() -> None:
    """A list has one value for each card; a single value is for all."""
    report = _parse(
        "n1: {count: 4, memoryMiB: 1, bandwidthGBps: 100, island: [a, a, b, b], numa: [0, 0, 1, 1], "
        "pcieGroups: [[0, 0], [0, 0], [2, 2], [2, 3]]}"
    )
    assert [device.island for device in report.devices] == ["a", "a", "b", "b"]
    assert [device.pcie_groups for device in report.devices] == [(0, 0), (0, 0), (2, 2), (2, 3)]
    layout = GpuNodeStatus(ObjectMeta("n1", "u"), report.status()).inventory().layout
    assert layout.islands == (0, 0, 1, 1)
    assert layout.bandwidth[0] == (100, 100, 0, 0)
    assert layout.tiers[2] == (CROSS_NUMA, CROSS_NUMA, LINKED, LINKED)
    assert _numa("n1: {count: 2, memoryMiB: 1, numa: 1}") == [1, 1]
    assert _parse("n1: {count: 2, memoryMiB: 1, pcieGroups: [0, 0]}").devices[1].pcie_groups == (0, 0)


def test_numa_node_is_unknown_unless_declared() -> None:
    """Such a card is reported without one, and next to no other."""
    assert _numa("n1: {count: 2, memoryMiB: 1}") == [NUMA_UNKNOWN] * 2
    assert _numa("n1: [{index: 0, memoryMiB: 1}, {index: 1, memoryMiB: 1, numa: 0}]") == [NUMA_UNKNOWN, 0]
    assert _numa("n1: {count: 2, memoryMiB: 1, numa: 0}") == [0, 0]


def test_cards_of_a_list_can_be_linked() -> None:
    """Links name cards by their indexes; a declared island and bandwidth stay, unlinked cards have neither."""
    report = _parse(
        "n1: {links: [[7, 2, 50]], cards: [{index: 2, memoryMiB: 1, numa: 0, pcieGroups: [2]}, "
        "{index: 5, memoryMiB: 1, numa: 0}, {index: 7, memoryMiB: 1, island: x, bandwidthGBps: 478}]}"
    )
    assert [(each.links, each.bandwidth_gbps, each.island) for each in report.devices] == [
        ((PeerLink(7, 50),), 50, "nvlink-2"),
        ((), 0, ""),
        ((PeerLink(2, 50),), 478, "x"),
    ]
    layout = GpuNodeStatus(ObjectMeta("n1", "u"), report.status()).inventory().layout
    assert layout.ids == (2, 5, 7)
    assert layout.tiers[0] == (LINKED, SAME_NUMA, LINKED)


def test_instances_have_no_links() -> None:
    """A card in MIG mode may have them, its instances never."""
    report = _parse(
        "n1: {links: [[0, 1, 50]], cards: [{index: 0, memoryMiB: 1}, "
        "{index: 1, memoryMiB: 81920, mode: mig, instances: [{profile: 1g.10gb, start: 6}]}]}"
    )
    assert [len(device.links) for device in report.devices] == [1, 1, 0]


@given(st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(1, 900)))
def test_declared_links_are_symmetric(drawn: Mapping[tuple[int, int], int]) -> None:
    """Each pair is declared once, in either order, and both cards report it."""
    links = {frozenset(pair): [*pair, gbps] for pair, gbps in drawn.items() if pair[0] != pair[1]}
    report = _parse(f"n1: {{count: 8, memoryMiB: 1, links: {list(links.values())}}}")
    reported = {(device.card.index, peer.id): peer.bandwidth_gbps for device in report.devices for peer in device.links}
    assert reported == {pair: gbps for one, other, gbps in links.values() for pair in ((one, other), (other, one))}
    assert all(device.bandwidth_gbps == sum(peer.bandwidth_gbps for peer in device.links) for device in report.devices)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("links: [[0, 2, 50]]", "f: n1.links[0] holds '[0, 2, 50]': the node has no card 2; use existing indexes"),
        ("links: [[1, 1, 50]]", "f: n1.links[0] holds '[1, 1, 50]': a card has no link to itself; name two cards"),
        ("links: [[0, 1, 0]]", "n1.links[0] holds '[0, 1, 0]': the GB/s must be at least 1; leave out cards"),
        ("links: [[0, 1, 5], [1, 0, 5]]", "n1.links[1] holds '[1, 0, 5]': the link of the cards 1 and 0 is declared"),
        (
            "links: [[0, 1]]",
            "n1.links[0] holds '[0, 1]': a link must be the indexes of two cards and their GB/s",
        ),
        ("links: [5]", "n1.links[0] holds '5': a link must be"),
        ("links: [[0, 1, 2.5]]", "n1.links[0] holds '[0, 1, 2.5]': a link must be"),
        ("links: [[0, 1, -1]]", "n1.links[0] holds '[0, 1, -1]': a link must be"),
        ("links: {0: 50}", "n1.links holds '{0: 50}': it must be a list of links such as [0, 1, 50]; correct"),
        ("numa: [0]", "n1.numa holds '[0]': a list must have a value for each of the 2 cards; add or remove values"),
        ("numa: -1", "n1.numa holds '-1': it must be a whole number from 0 to 2147483647, or a list with such a value"),
        ("numa: [0, x]", "n1.numa holds"),
        ("island: [a, b, c]", "a list must have a value for each of the 2 cards"),
        ("island: 5", "n1.island holds '5': it must be a string of at most 253 characters, or a list"),
        ("pcieGroups: [0, 0, 0, 0, 0]", "n1.pcieGroups holds '[0, 0, 0, 0, 0]': it must be a list of at most 4"),
        ("pcieGroups: [[0], [2]]", "n1, card 1, pcieGroups holds '[2]': each must be the index of the first card"),
        ("pcieGroups: [[0], [1, 0]]", "n1, card 1, pcieGroups holds '[1, 0]': each must be"),
    ],
)
def test_impossible_connection_is_rejected(more: str, message: str) -> None:
    """The message names the place in the file, the value, the allowed values and the next step."""
    with pytest.raises(InventoryError) as refusal:
        _parse(f"n1: {{count: 2, memoryMiB: 1, {more}}}")
    assert message in str(refusal.value)


def test_card_has_as_many_links_as_the_crd_permits() -> None:
    """The API server would refuse the report."""
    links = [[0, other, 1] for other in range(1, 66)]
    assert len(_parse(f"n1: {{count: 66, memoryMiB: 1, links: {links[:64]}}}").devices[0].links) == 64
    with pytest.raises(InventoryError, match=r"n1\.links\[64\] .* a card may have links to 64 others; declare an isl"):
        _parse(f"n1: {{count: 66, memoryMiB: 1, links: {links}}}")
