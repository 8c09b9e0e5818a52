"""Check through the API that every node has its cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocation.names import HAMI_REGISTER
from allocation.wire.hami import decode_register
from lab import fleet, wait
from lab.client import client
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

_PATIENCE_S = 15.0


def verify(layout: Layout) -> Iterator[str]:
    """Check that every node has its cards, and print a line for each.

    The nodes do not advertise `nvidia.com/gpu`, so the reports of their agent are checked.

    Raises:
        LabError: a node lacks cards.
    """
    for node in fleet.nodes(layout):
        reported = wait.until(
            lambda node=node: _reported(layout, node),  # type: ignore[misc]
            what=f"GpuNodeStatus of node {node}",
            timeout_s=_PATIENCE_S,
            remedy=f"read {layout.logs / 'agent.log'}",
        )
        annotations = client(layout).get("node", node)["metadata"].get("annotations", {})
        registered = len(decode_register(node, annotations.get(HAMI_REGISTER, "[]")).cards)
        if not reported == registered == fleet.CARDS_PER_NODE:
            raise LabError(
                f"node {node}",
                why=f"GpuNodeStatus has {reported} cards, annotation {HAMI_REGISTER} {registered}",
                remedy=f"both should be {fleet.CARDS_PER_NODE}: read {layout.logs / 'agent.log'}",
            )
        yield f"{node}: {registered} GPUs registered"


def _reported(layout: Layout, node: str) -> int:
    status = client(layout).find("gpunodestatus", node) or {}
    return int(status.get("status", {}).get("total", 0))
