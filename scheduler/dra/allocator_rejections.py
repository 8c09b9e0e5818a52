"""Why a node of another allocator takes no GPU pods, for decisions and for `kubectl gpu top`, which has no ledger."""

from allocation.reasons import NodeReason, NodeRejection
from cluster.gpu_node_status import Allocator


def rejection_by(allocator: Allocator) -> NodeRejection | None:
    """Return the rejection of each pod by a node whose agent reports this allocator; None if it is the ledger."""
    return {"ledger": None, "draining": _DRAINING, "dra": _OF_DRA}[allocator]


_DRAINING = NodeRejection(
    NodeReason.NodeDraining,
    "the node is handed over to DRA: it takes no GPU pods, and those that it has are left to end (docs/dra.md)",
    resolvable=False,
)
_OF_DRA = NodeRejection(
    NodeReason.AllocatedByDra,
    "Kubernetes allocates the node's cards by DRA, to pods with a ResourceClaim of DeviceClass gpu.scheduling"
    " (docs/dra.md)",
    resolvable=False,
)
RETURNING = NodeRejection(
    NodeReason.NodeDraining,
    "the node comes back from DRA: its ResourceSlice is not seen to be gone yet",
    resolvable=False,
)
