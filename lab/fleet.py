"""The simulated cards of the lab's nodes; those of the real node are simulated as well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lab.files import write_private

if TYPE_CHECKING:
    from lab.layout import Layout

SIMULATED_NODES = ("gpu-sim-0", "gpu-sim-1", "gpu-sim-2")
SIMULATED_NOTE = (
    f"{', '.join(SIMULATED_NODES)} are simulated: no kubelet runs there. A pod on them is Ready at once\n"
    "and its rollout succeeds, but no container runs; `kubectl get pods` shows its status as Simulated."
)
CARDS_PER_NODE = 8
CARD_MEMORY_MIB = 81920
_NODE: dict[str, Any] = {
    "count": CARDS_PER_NODE,
    "memoryMiB": CARD_MEMORY_MIB,
    "slots": 10,
    "model": "NVIDIA H100 80GB HBM3",
    "numa": [index // 4 for index in range(CARDS_PER_NODE)],
    "island": "nvlink-0",
    "bandwidthGBps": 478,
}


def write(layout: Layout, *, real_node: bool) -> Path:
    """Write the fleet file that the lab's agent reads."""
    nodes = (*SIMULATED_NODES, *([layout.node_name] if real_node else []))
    return write_private(layout.config / "fleet.yaml", yaml.safe_dump(dict.fromkeys(nodes, _NODE)))


def nodes(layout: Layout) -> list[str]:
    """Return the nodes with cards of a running lab."""
    return list(yaml.safe_load((layout.config / "fleet.yaml").read_text(encoding="utf-8")))


def card(node: str, index: int) -> str:
    """Return the UUID of a card, as the agent derives it."""
    return f"GPU-{node}-{index}"
