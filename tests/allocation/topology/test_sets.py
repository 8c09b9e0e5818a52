"""Sets that are listed have the properties that tables compute for all sets at once."""

from itertools import combinations
from typing import get_args

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.topology.layout import Layout
from allocation.topology.listed_sets import ListedSets, card_arrays
from allocation.topology.ranking import Property
from allocation.topology.subsets import MaskedSets, Subsets, mask_of
from tests.allocation.support.layouts import layouts


@given(layout=layouts(most=7), data=st.data())
def test_properties_are_those_of_the_tables(layout: Layout, data: st.DataObject) -> None:
    """Each of them, and the number of given cards, for all sets of one size."""
    count = data.draw(st.integers(1, len(layout)))
    members = list(combinations(range(len(layout)), count))
    listed = ListedSets(card_arrays(layout), np.array(members, np.int64))
    masked = MaskedSets(Subsets(layout), np.array([mask_of(each) for each in members], np.int64), count)
    for name in get_args(Property):
        assert listed.values(name).tolist() == masked.values(name).tolist(), name
    bits = data.draw(st.sets(st.integers(0, len(layout) - 1)))
    assert listed.number_of(bits).tolist() == masked.number_of(bits).tolist()
