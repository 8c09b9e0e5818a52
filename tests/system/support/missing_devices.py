"""The lab with the component that deletes pods whose card is gone, and a scheduler that looks often."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from lab import manifests
from lab.client import client
from lab.files import write_private
from tests.support.patience import PATIENCE_S
from tests.system.support import simulated_nodes
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout

_FLAGS = ("--missing-devices=delete", "--missing-devices-delay-seconds=0", "--missing-devices-period-seconds=0.5")


def component() -> list[dict[str, Any]]:
    """Return the objects that manifests/missing-devices adds."""
    file = manifests.ROOT / "missing-devices" / "scheduler.yaml"
    return manifests.read(file.read_text(encoding="utf-8"))


@contextmanager
def losing_node(layout: Layout, node: str) -> Iterator[None]:
    """Run a node that `report` describes and the scheduler with the component; restore the lab afterwards."""
    fleet_file = layout.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    client(layout).apply(*component())
    with simulated_nodes.running(layout, node):
        try:
            restart(layout, "scheduler", *_FLAGS)
            yield
        finally:
            restart(layout, "scheduler")
            write_private(fleet_file, before)
            delete(layout, *component())


def report(layout: Layout, node: str, *cards: dict[str, Any]) -> None:
    """Declare exactly these cards of a node, and wait until the agent has reported them."""
    fleet_file = layout.config / "fleet.yaml"
    nodes = yaml.safe_load(fleet_file.read_text(encoding="utf-8"))
    write_private(fleet_file, yaml.safe_dump({**nodes, node: [{"memoryMiB": 40960, **card} for card in cards]}))
    wanted = {(card["index"], card.get("missing")) for card in cards}

    def has_reported(statuses: Mapping[str, Any]) -> bool:
        devices = statuses.get(node, {}).get("status", {}).get("devices", [])
        return {(device["id"], device.get("missing")) for device in devices} == wanted

    client(layout).until(has_reported, "gpunodestatuses", what=f"the report of {node}", timeout_s=PATIENCE_S)
