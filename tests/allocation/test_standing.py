"""The best of many is found by blocks, and is the best of all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.standing import UNFIT, Standing

WORTHS = st.sampled_from((UNFIT, -1.5, 0.0, 1.0, 1.0, 2.0))


@given(st.lists(WORTHS, max_size=70), st.lists(st.tuples(st.integers(0, 69), WORTHS), max_size=60))
def test_the_best_is_the_first_maximum(worths: list[float], changes: list[tuple[int, float]]) -> None:
    """After any changes, as is the number of those that are a choice."""
    standing = Standing(np.array(worths))
    for rank, worth in [(rank, worth) for rank, worth in changes if rank < len(worths)]:
        standing.set(rank, worth)
        worths[rank] = worth
        assert standing.worth(rank) == worth
        best = max(worths)
        if best == UNFIT:
            assert standing.best()[1] == UNFIT
        else:
            assert standing.best() == (worths.index(best), best)
        assert standing.count == sum(worth != UNFIT for worth in worths)


def test_of_nobody_nobody_is_best() -> None:
    """An empty ledger has no choice."""
    standing = Standing(np.zeros(0))
    assert standing.best()[1] == UNFIT
    assert standing.count == 0
