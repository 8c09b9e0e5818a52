"""Inventory from `CUDA_VISIBLE_DEVICES` in the agent's own environment, which limits the cards that are reported.

As in CUDA, an empty value or `-1` means no card; otherwise each entry before a `-1` names one card by its index in
NVML's order, by its UUID, or by a prefix of its UUID. If NVML is available, the entries select among its cards.
Otherwise the configuration (`default_card`) describes the cards; if it does not, no card is reported.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from agent.device_use import Measured
from agent.inventory import UUID
from agent.nvml.source import NvmlSource
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from allocation.inventory import Card
from allocation.mig import InstanceRequest
from allocation.topology.layout import NUMA_UNKNOWN
from cluster.gpu_node_status import NodeProblem
from cluster.log_once import LogOnce

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_INDEX: Final = re.compile(r"[0-9]{1,4}")
_NOT_NAMED: Final = NodeProblem("NoCards", f"{VARIABLE} of the agent names no card")


def entries(text: str) -> tuple[str, ...]:
    """Return the distinct entries of the variable in order, without those that cannot be an index or a UUID."""
    distinct: dict[str, None] = {}
    for entry in (part.strip() for part in text.split(",")):
        if entry == "-1":
            break
        if UUID.fullmatch(entry):
            distinct[entry] = None
    return tuple(distinct)


class VisibleDevices:
    """The cards that the variable names."""

    def __init__(self, text: str, *, node: str, settings: AgentSettings, nvml: NvmlSource) -> None:
        """Parse `text`, the value of the variable; `nvml` reads the hardware."""
        self._entries = entries(text)
        self._node = node
        self._settings = settings
        self._nvml = nvml
        self._named = frozenset[str]()
        self._log_once = LogOnce()

    def read(self) -> Mapping[str, NodeReport]:
        """Return the named cards in the order of their indexes."""
        if not self._entries:
            self._log_once.report(VARIABLE, "it names no card, so the agent reports none")
            return {self._node: NodeReport(self._node, problem=_NOT_NAMED)}
        report = self._nvml.read()[self._node]
        if self._nvml.was_available:
            return {self._node: self._selected(report)}
        assumed = self._assumed()
        return {self._node: NodeReport(self._node, assumed, problem=None if assumed else report.problem)}

    def create(self, node: str, request: InstanceRequest) -> None:
        """Create the requested instance (see `InventorySource`)."""
        self._nvml.create(node, request)

    def destroy(self, node: str, request: InstanceRequest) -> None:
        """Destroy the requested instance (see `InventorySource`)."""
        self._nvml.destroy(node, request)

    def measure(self) -> Measured:
        """Return what the processes use of the named cards (see `InventorySource`)."""
        measured = self._nvml.measure()
        return Measured(
            {card: devices for card, devices in measured.read.items() if card in self._named},
            {card: problem for card, problem in measured.unread.items() if card in self._named},
        )

    def _selected(self, report: NodeReport) -> NodeReport:
        whole = [device.card for device in report.devices if device.card.instance is None]
        unclear = [entry for entry in self._entries if sum(_names(entry, card) for card in whole) != 1]
        clear = [entry for entry in self._entries if entry not in unclear]
        self._named = frozenset(card.uuid for card in whole if any(_names(entry, card) for entry in clear))
        problem = f"ignored entries: {', '.join(unclear)}; each must name exactly one card" if unclear else ""
        self._log_once.report(VARIABLE, problem)
        devices = tuple(device for device in report.devices if (device.card.parent or device.card.uuid) in self._named)
        return msgspec.structs.replace(
            report, devices=devices, problem=report.problem or (None if devices else _NOT_NAMED)
        )

    def _assumed(self) -> tuple[DeviceReport, ...]:
        default = self._settings.default_card
        if not default.memory_mib:
            self._log_once.report(
                VARIABLE,
                f"it names {len(self._entries)} cards, but without NVML their memory is unknown, so the agent reports "
                "none; set agent.default_card.memory_mib or write a fleet file",
            )
            return ()
        indexes = [int(entry) if _INDEX.fullmatch(entry) else -1 for entry in self._entries]
        if -1 in indexes or len(set(indexes)) < len(indexes):
            indexes = list(range(len(self._entries)))
        self._log_once.report(VARIABLE, "")
        cards = [
            Card(
                uuid=f"GPU-{self._node}-{index}" if _INDEX.fullmatch(entry) else entry,
                index=index,
                memory_mib=default.memory_mib,
                slots=self._settings.slots,
                model=default.model,
                numa=NUMA_UNKNOWN,
            )
            for index, entry in sorted(zip(indexes, self._entries, strict=True))
        ]
        return tuple(DeviceReport(card) for card in cards)


def _names(entry: str, card: Card) -> bool:
    return int(entry) == card.index if _INDEX.fullmatch(entry) else card.uuid.startswith(entry)
