"""A lower bound for any decision that looks at every card: one numpy pass over the columns."""

import time

import numpy as np

from allocation.ledger.card_table import CORES, MEMORY, SLOTS
from allocation.ledger.ledger import Ledger


def floor(ledger: Ledger, *, times: int = 50) -> list[float]:
    """Return the seconds of passes that make three comparisons, a score and a maximum."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        free = ledger.total - ledger.used
        fits = (free[MEMORY] >= 3000) & (free[CORES] >= 100) & (free[SLOTS] >= 1)
        np.where(fits.any(axis=1), ledger.fullness, -1.0).argmax()
        seconds.append(time.perf_counter() - begin)
    return seconds
