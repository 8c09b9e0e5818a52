"""Texts in the cells of tables."""

import pytest

from cli.tables import NOTHING, age, listed


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_800, "2d"),
        (9e7, "1041d"),
    ],
)
def test_an_age_has_two_or_more_of_its_unit(seconds: float, text: str) -> None:
    """Kubectl shows ages like this; a clock that is behind gives no negative age."""
    assert age(seconds) == text


def test_a_list_is_shortened_and_counts_the_rest() -> None:
    """A row of a table stays a line."""
    assert listed(["a", "b", "c"], shown=2) == "a,b,+1 more"
    assert listed(["a", "b"], shown=2) == listed(["a", "b"]) == "a,b"
    assert listed([]) == NOTHING
