"""Layouts are symmetric and bounded, whatever cards report of each other."""

from hypothesis import given

from allocation.topology.layout import LINKED, CardLinks, Layout, PeerLink, of_links
from tests.allocation.support.layouts import reported


@given(reported())
def test_layouts_are_symmetric(layout: Layout) -> None:
    """A pair has one bandwidth, tier and score, and cards are linked exactly within tier 0."""
    cards = range(len(layout))
    for matrix in (layout.bandwidth, layout.tiers, layout.numa_tiers, layout.scores):
        assert all(matrix[one][other] == matrix[other][one] for one in cards for other in cards)
    for one in cards:
        assert layout.tiers[one][one] == layout.numa_tiers[one][one] == LINKED
        assert all(layout.tiers[one][other] == LINKED for other in cards if layout.bandwidth[one][other])


@given(reported())
def test_reported_numbers_are_bounded(layout: Layout) -> None:
    """Sums over all pairs of a large node fit in 64 bits, whatever a node reports."""
    numbers = [*layout.ids, *(number for row in (*layout.bandwidth, *layout.scores) for number in row)]
    assert all(0 <= number < 1 << 23 for number in numbers)


def test_a_link_that_one_side_reports_does_not_count() -> None:
    """Two cards are linked if both say so, at the lower of both bandwidths."""
    layout = of_links(
        (
            CardLinks(0, peers=(PeerLink(1, 50), PeerLink(2, 25))),
            CardLinks(1, peers=(PeerLink(0, 100),)),
            CardLinks(2),
        )
    )
    assert layout.bandwidth[0][1] == 50
    assert layout.bandwidth[0][2] == 0
    assert layout.tiers[0][2] != LINKED
