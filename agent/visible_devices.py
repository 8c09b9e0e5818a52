"""Inventory by `CUDA_VISIBLE_DEVICES` of the agent's own environment: which of the node's cards are ours to give.

Empty or `-1` means none, otherwise each entry, up to one that is `-1`, is one card: an index, in NVML's order, or a
UUID or the beginning of one, as CUDA reads them. With NVML the entries choose among its cards. Without it they only
count, so what each card is comes from the configuration (`default_card`), and without that no card is reported.
"""

import re
from collections.abc import Mapping
from typing import Final

from agent.inventory import UUID
from agent.notices import Notices
from agent.nvml_source import NvmlSource
from agent.report import DeviceReport, NodeReport
from agent.settings import AgentSettings
from allocation.inventory import Card
from allocation.mig import Wish

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_INDEX: Final = re.compile(r"[0-9]{1,4}")


def entries(text: str) -> tuple[str, ...]:
    """Answer what the variable names, each once, in its order; what can be neither index nor UUID names nothing."""
    found: dict[str, None] = {}
    for entry in (part.strip() for part in text.split(",")):
        if entry == "-1":
            break
        if UUID.fullmatch(entry):
            found[entry] = None
    return tuple(found)


class VisibleDevices:
    """The cards that the variable names."""

    def __init__(self, text: str, *, node: str, settings: AgentSettings, nvml: NvmlSource) -> None:
        """Read `text`, the variable's value, with what `nvml` knows of this machine."""
        self._entries = entries(text)
        self._node = node
        self._settings = settings
        self._nvml = nvml
        self._notices = Notices()

    def read(self) -> Mapping[str, NodeReport]:
        """Answer the cards that are named, in the order of their indexes."""
        if not self._entries:
            self._notices.tell(VARIABLE, "it names no card, so none is reported")
            return {self._node: NodeReport(self._node)}
        report = self._nvml.read()[self._node]
        if self._nvml.present:
            return {self._node: self._chosen(report)}
        return {self._node: NodeReport(self._node, self._assumed())}

    def create(self, node: str, wish: Wish) -> None:
        """Have the instance of a wish (see `InventorySource`)."""
        self._nvml.create(node, wish)

    def destroy(self, node: str, wish: Wish) -> None:
        """Have no instance of a wish (see `InventorySource`)."""
        self._nvml.destroy(node, wish)

    def _chosen(self, report: NodeReport) -> NodeReport:
        whole = [device.card for device in report.devices if device.card.instance is None]
        unknown = [entry for entry in self._entries if sum(_names(entry, card) for card in whole) != 1]
        known = [entry for entry in self._entries if entry not in unknown]
        chosen = {card.uuid for card in whole if any(_names(entry, card) for entry in known)}
        self._notices.tell(VARIABLE, f"not exactly one card is called {', '.join(unknown)}" if unknown else "")
        devices = tuple(device for device in report.devices if (device.card.parent or device.card.uuid) in chosen)
        return NodeReport(report.node, devices, report.driver_version)

    def _assumed(self) -> tuple[DeviceReport, ...]:
        default = self._settings.default_card
        if not default.memory_mib:
            self._notices.tell(
                VARIABLE,
                f"it names {len(self._entries)} cards, but without NVML nobody knows their memory, so none is "
                "reported; set agent.default_card.memory_mib or write a fleet file",
            )
            return ()
        indexes = [int(entry) if _INDEX.fullmatch(entry) else -1 for entry in self._entries]
        if -1 in indexes or len(set(indexes)) < len(indexes):
            indexes = list(range(len(self._entries)))
        self._notices.tell(VARIABLE, "")
        cards = [
            Card(
                uuid=f"GPU-{self._node}-{index}" if _INDEX.fullmatch(entry) else entry,
                index=index,
                memory_mib=default.memory_mib,
                slots=self._settings.slots,
                model=default.model,
            )
            for index, entry in sorted(zip(indexes, self._entries, strict=True))
        ]
        return tuple(DeviceReport(card) for card in cards)


def _names(entry: str, card: Card) -> bool:
    return int(entry) == card.index if _INDEX.fullmatch(entry) else card.uuid.startswith(entry)
