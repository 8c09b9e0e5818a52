"""The objects of a node with an agent, as the API server has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from allocation.inventory import Card, NodeInventory
from cluster.gpu_node_status import status_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAR = "2126-01-01T00:00:00.000000Z"
Object = dict[str, Any]


def of_node(
    name: str, *cards: Card, metadata: Object | None = None, seconds: int = 60, **reported: Any
) -> Iterator[tuple[str, Object]]:
    """Yield the node, its report and the Lease of its agent, which lasts for `seconds`, each with its plural name.

    `conditions` are those of the node.
    """
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}, **(metadata or {})}
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    status = {"allocatable": allocatable, "conditions": reported.pop("conditions", [])}
    yield "nodes", {"metadata": meta, "spec": {}, "status": status}
    status = {**msgspec.to_builtins(status_of(NodeInventory(name, cards))), **reported}
    yield "gpunodestatuses", {"metadata": {"name": name}, "spec": {"nodeName": name}, "status": status}
    spec = {"holderIdentity": "agent", "leaseDurationSeconds": seconds, "renewTime": _FAR}
    yield "leases", {"metadata": {"name": f"agent-{name}", "namespace": "tranche-system"}, "spec": spec}
