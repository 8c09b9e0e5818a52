"""The rest of a card that a pod shares: what is free of it once the pod is there, for those that come after.

A pod leaves most where it opens a card, and nothing where it fills one. So a small pod goes where a card has just
enough room for it, and whole cards stay whole. Amounts are thousandths of a card, by the scarcer of its device memory
and compute; a request is compared with the mean card of each node, as in `allocation.placement.score`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.request import WHOLE_CARD, ContainerRequest

Parts = NDArray[np.int16]
"""Shape (row, card): the free part of each card, `NO_CARD` of one that takes no pod or does not exist."""
NO_CARD: Final = -1
_MOST: Final = np.int16(2**14)


def shares_card(containers: Sequence[ContainerRequest]) -> bool:
    """Whether a pod requests a part of one card, and not whole cards or several."""
    if len(containers) != 1:
        return False
    (only,) = containers
    is_whole = only.whole or only.cores >= WHOLE_CARD or (only.memory_mib is None and only.memory_percent >= 100)
    return only.count == 1 and not is_whole


def parts_of(ledger: Ledger, row: int) -> list[int]:
    """Return the free part of each card of the node of a row in use."""
    facts, (used_mib, used_cores, _) = ledger.facts(row), ledger.used_lists(row)
    return [
        min((mib - mib_used) * WHOLE_CARD // max(mib, 1), cores - cores_used, WHOLE_CARD) if usable else NO_CARD
        for usable, mib, mib_used, cores, cores_used in zip(
            facts.usable, facts.memory_mib, used_mib, facts.cores, used_cores, strict=True
        )
    ]


def size(mib: Any, mean_mib: Any, cores: int, most: Any) -> Any:
    """Return how much a request is of a card of a node: of one node, or of many with `numpy.maximum` as `most`."""
    return most(-(-mib * WHOLE_CARD // most(mean_mib, 1)), cores)


def of_rows(parts: Parts, sizes: NDArray[np.int64], *, fullest: bool) -> NDArray[np.float64]:
    """Return the rest, in cards, of the fullest card with room for a request, or else of the emptiest; 0 without one.

    `parts` and `sizes` have a row for each node.
    """
    none = _MOST if fullest else np.int16(0)
    rests = parts - np.minimum(sizes, _MOST).astype(np.int16)[:, np.newaxis]
    rests[rests < 0] = none
    found = rests.min(axis=1) if fullest else rests.max(axis=1)
    found[found == _MOST] = 0
    cards: NDArray[np.float64] = found / WHOLE_CARD
    return cards


def of_row(parts: Iterable[int], size: int, *, fullest: bool) -> float:
    """Return the same for one node."""
    rests = [part - size for part in parts if part >= size]
    if not rests:
        return 0.0
    return (min(rests) if fullest else max(rests)) / WHOLE_CARD
