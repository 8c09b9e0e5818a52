"""The maximum over blocks is the maximum over all values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.placement.block_max import INFEASIBLE, BlockMax

VALUES = st.sampled_from((INFEASIBLE, -1.5, 0.0, 1.0, 1.0, 2.0))


@given(st.lists(VALUES, max_size=70), st.lists(st.tuples(st.integers(0, 69), VALUES), max_size=60))
def test_best_is_the_first_maximum_after_any_changes(values: list[float], changes: list[tuple[int, float]]) -> None:
    """The number of feasible values is right as well."""
    block_max = BlockMax(np.array(values))
    for index, value in [(index, value) for index, value in changes if index < len(values)]:
        block_max.set(index, value)
        values[index] = value
        assert block_max.value(index) == value
        best = max(values)
        if best == INFEASIBLE:
            assert block_max.best()[1] == INFEASIBLE
        else:
            assert block_max.best() == (values.index(best), best)
        assert block_max.count == sum(value != INFEASIBLE for value in values)


def test_an_empty_array_has_no_feasible_value() -> None:
    """An empty ledger has no node to choose."""
    block_max = BlockMax(np.zeros(0))
    assert block_max.best()[1] == INFEASIBLE
    assert block_max.count == 0
