"""Which nodes may have one more pod with cards, by the most pods that a node may have."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.placement import rejection as rejections
from allocation.placement.rejection import Rejection
from allocation.reasons import NodeReason, NodeRejection

Rows = NDArray[np.int64]


def rejection(ledger: Ledger, row: int) -> Rejection | None:
    """Return the rejection by the node of one row, or None if it may have one more."""
    most = ledger.rules.most_pods
    return None if most is None or not ledger.is_full(row) else _of_full(most)


def divide(ledger: Ledger, rows: Rows) -> tuple[Rows, dict[str, Rejection]]:
    """Return those of `rows` whose nodes may have one more, and the rejections by the others."""
    most = ledger.rules.most_pods
    if most is None:
        return rows, {}
    full = ledger.pods[rows] >= most
    return rows[~full], dict.fromkeys(ledger.names(rows[full]), _of_full(most))


@lru_cache(maxsize=4)
def _of_full(most: int) -> Rejection:
    """Return the rejection by a node that has `most` pods; nodes share one object."""
    text = f"it has as many pods with cards as allocation.most_pods_per_node allows ({most})"
    return rejections.of_node(NodeRejection(NodeReason.NodeGpuPodsExhausted, text))
