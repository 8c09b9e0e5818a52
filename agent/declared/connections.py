"""How the cards of a node in a fleet file are connected: NVLinks between two cards, and groups on PCIe.

    links: [[0, 1, 50], [0, 2, 25]]

A link has the indexes of two cards and the GB/s of all links between them in one direction. Each pair is declared once,
so that both cards report the same. As from NVML, a linked card without `bandwidthGBps` has the sum of its links, and
one without `island` is in that of the cards that it reaches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from agent.declared import keys
from agent.nvml import nvlink
from agent.report import DeviceReport
from allocation.errors import InvalidFieldError
from allocation.topology.layout import PeerLink

_MOST_PEERS: Final = 64  # the limit of the GpuNodeStatus CRD
_LINK_MEMBERS: Final = 3


def connect(devices: Sequence[DeviceReport], links: Sequence[Any], *, place: str) -> tuple[DeviceReport, ...]:
    """Return the devices with the declared links; `place` is the position of their node in the file, for messages.

    Raises:
        InvalidFieldError: a link or a PCIe group is not one of cards of this node.
    """
    cards = {device.card.index: device for device in devices if device.card.instance is None}
    for card in cards.values():
        _check_pcie(card, cards, place=place)
    peers: dict[int, dict[int, int]] = {index: {} for index in cards}
    for position, link in enumerate(links):
        one, other, gbps = _read_link(link, peers, place=f"{place}.links[{position}]")
        peers[one][other] = peers[other][one] = gbps
    islands = _islands(peers)
    return tuple(
        device if device.card.instance is not None else _linked(device, peers[device.card.index], islands)
        for device in devices
    )


def _check_pcie(device: DeviceReport, cards: Mapping[int, DeviceReport], *, place: str) -> None:
    index, groups = device.card.index, device.pcie_groups
    if any(group not in cards or group > index for group in groups) or list(groups) != sorted(groups):
        raise InvalidFieldError(
            field=f"{place}, card {index}, pcieGroups",
            value=list(groups),
            expected=f"each must be the index of the first card of a group of card {index}, the largest group first",
            remedy="declare the groups of NUMA node, host bridge, PCIe switches and PCIe switch",
        )


def _read_link(link: Any, peers: Mapping[int, Mapping[int, int]], *, place: str) -> tuple[int, int, int]:
    def refuse(expected: str, remedy: str) -> InvalidFieldError:
        return InvalidFieldError(field=place, value=link, expected=expected, remedy=remedy)

    if not isinstance(link, list) or len(link) != _LINK_MEMBERS or not all(map(keys.whole(0).accepts, link)):
        raise refuse("a link must be the indexes of two cards and their GB/s", "write for example [0, 1, 50]")
    one, other, gbps = link
    for index in (one, other):
        if index not in peers:
            raise refuse(f"the node has no card {index}", "use existing indexes")
    if one == other:
        raise refuse("a card has no link to itself", "name two cards")
    if gbps == 0:
        raise refuse("the GB/s must be at least 1", "leave out cards that are not linked")
    if other in peers[one]:
        raise refuse(f"the link of the cards {one} and {other} is declared already", "declare each pair once")
    if max(len(peers[one]), len(peers[other])) == _MOST_PEERS:
        raise refuse(f"a card may have links to {_MOST_PEERS} others", "declare an island instead")
    return one, other, gbps


def _islands(peers: Mapping[int, Mapping[int, int]]) -> dict[int, str]:
    return nvlink.islands(
        nvlink.Endpoint(index, str(index), tuple(nvlink.Link(str(peer), gbps * 1000) for peer, gbps in others.items()))
        for index, others in peers.items()
    )


def _linked(device: DeviceReport, peers: Mapping[int, int], islands: Mapping[int, str]) -> DeviceReport:
    if not peers:
        return device
    return msgspec.structs.replace(
        device,
        links=tuple(PeerLink(peer, gbps) for peer, gbps in sorted(peers.items())),
        bandwidth_gbps=device.bandwidth_gbps or sum(peers.values()),
        island=device.island or islands[device.card.index],
    )
