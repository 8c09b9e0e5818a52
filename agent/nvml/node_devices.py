"""The devices of a node, from the readings of its cards: what each card is, and how it is connected to the others."""

from collections.abc import Collection, Mapping

import msgspec

from agent.nvml.card_probes import Readings
from agent.nvml.card_reading import CardReading
from agent.nvml.mig_devices import mig_devices
from agent.nvml.nvlink import Endpoint, bandwidth_gbps, islands, peers
from agent.nvml.pcie import Pair, groups
from agent.report import DeviceReport
from agent.scaling import scaled
from agent.settings import AgentSettings
from allocation.inventory import Card
from allocation.topology.layout import NUMA_UNKNOWN


def devices_of(
    readings: Readings,
    *,
    messages: Mapping[str, str],
    lost: Collection[str],
    missing: Collection[str],
    levels: Mapping[Pair, int],
    settings: AgentSettings,
) -> tuple[DeviceReport, ...]:
    """Return the devices in the order of their indexes, each MIG instance after its card.

    `messages` says by UUID why a card is unhealthy, `lost` has the UUIDs of cards that could not be read this time,
    `missing` those among them that the node does not have any more, and `levels` is NVML's level of each pair of cards
    on PCIe.
    """
    cards = _in_order(readings, lost=lost)
    endpoints = [Endpoint(card.index, card.place.address, card.links or ()) for card in cards]
    island_of, peers_of = islands(endpoints), peers(endpoints)
    groups_of = groups([card.place for card in cards], levels)
    devices: list[DeviceReport] = []
    for card in cards:
        device = DeviceReport(
            _card(card, settings, healthy=not messages[card.uuid]),
            bandwidth_gbps=bandwidth_gbps(card.links or ()),
            island=island_of[card.index],
            message=messages[card.uuid],
            links=peers_of[card.index],
            pcie_groups=groups_of[card.index],
            missing=card.uuid in missing,
        )
        if card.is_mig_enabled:
            devices += mig_devices(device, card.mig, by=settings.mig_instances_by)
        else:
            devices.append(device)
    return tuple(devices)


def _card(reading: CardReading, settings: AgentSettings, *, healthy: bool) -> Card:
    card = Card(
        uuid=reading.uuid,
        index=reading.index,
        memory_mib=reading.memory_mib,
        slots=settings.slots,
        model=reading.model or "",
        numa=NUMA_UNKNOWN if reading.numa is None else reading.numa,
        healthy=healthy,
    )
    if reading.is_mig_enabled:
        return card
    return scaled(card, memory=settings.memory_scaling, cores=settings.core_scaling)


def _in_order(known: Readings, *, lost: Collection[str]) -> list[CardReading]:
    """Return the cards by index. If another card now has the index of a lost one, the lost one moves to the end."""
    cards = {reading.index: reading for uuid, reading in known.items() if uuid not in lost}
    for uuid in sorted(lost, key=lambda uuid: known[uuid].index):
        index = known[uuid].index if known[uuid].index not in cards else max(cards) + 1
        cards[index] = msgspec.structs.replace(known[uuid], index=index)
    return [cards[index] for index in sorted(cards)]
