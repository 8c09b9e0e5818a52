"""The rest of a card that a pod shares: what is free of it once the pod is there, for those that come after.

A pod leaves most where it opens a card, and nothing where it fills one. So a small pod goes where a card has just
enough room for it, and whole cards stay whole. Amounts are thousandths of a card, by the scarcer of its device memory
and compute; a request is compared with the mean card of each node, as in `allocation.placement.score`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.card_table import CORES, MEMORY
from allocation.ledger.ledger import Ledger
from allocation.request import WHOLE_CARD, ContainerRequest

NO_CARD: Final = -1
"""The free part of a card that takes no pod or does not exist."""


def shares_card(containers: Sequence[ContainerRequest]) -> bool:
    """Whether a pod requests a part of one card, and not several cards or one whose whole memory it takes.

    Nothing is left of the latter.
    """
    if len(containers) != 1 or containers[0].count != 1:
        return False
    return containers[0].memory_mib is not None or containers[0].memory_percent < 100


def parts_of(ledger: Ledger, row: int) -> tuple[int, ...]:
    """Return the free part of each card of the node of a row in use."""
    facts, (used_mib, used_cores, *_) = ledger.facts(row), ledger.used_lists(row)
    return tuple(
        min((mib - mib_used) * WHOLE_CARD // max(mib, 1), cores - cores_used) if usable else NO_CARD
        for usable, mib, mib_used, cores, cores_used in zip(
            facts.usable, facts.total[MEMORY], used_mib, facts.total[CORES], used_cores, strict=True
        )
    )


def size(mib: Any, mean_mib: Any, cores: Any, most: Any) -> Any:
    """Return how much a request is of a card of a node: of one node, or of many with `numpy.maximum` as `most`."""
    return most(-(-mib * WHOLE_CARD // most(mean_mib, 1)), cores)


def of_rows(parts: NDArray[np.float64], sizes: NDArray[np.float64], *, fullest: bool) -> NDArray[np.float64]:
    """Return the rest, in cards, of the fullest card with room for a request, or else of the emptiest; 0 without one.

    `parts` has the shape (card, row), and `sizes` (row,).
    """
    rests = parts - sizes
    if fullest:
        found: NDArray[np.float64] = np.where(rests < 0.0, np.inf, rests).min(axis=0)
        found[found == np.inf] = 0.0
    else:
        found = np.maximum(rests.max(axis=0), 0.0)
    return found / WHOLE_CARD


def of_row(parts: Iterable[int], size: int, *, fullest: bool) -> float:
    """Return the same for one node."""
    rests = [part - size for part in parts if part >= size]
    if not rests:
        return 0.0
    return (min(rests) if fullest else max(rests)) / WHOLE_CARD
