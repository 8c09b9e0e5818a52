"""Texts in the cells of tables."""

import pytest

from cli.tables import NOTHING, Table, age, listed


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


@pytest.mark.parametrize("headers", [True, False])
def test_a_table_has_at_most_120_columns_unless_it_is_wide(*, headers: bool) -> None:
    """The widest columns are cut, the others stay whole; what fits is not changed."""
    table = Table(("NODE", "REASON", "NAMES"), [("n1", "x" * 100, "y" * 60), ("n2", "short", "z" * 8)])
    lines = table.text(headers=headers).splitlines()
    assert max(map(len, lines)) == 120
    assert ("…" in lines[-2], lines[-1].split()) == (True, ["n2", "short", "z" * 8])
    assert "x" * 100 in table.text(headers=headers, wide=True)
    narrow = Table(("A", "B"), [("x" * 50, "y" * 60)])
    assert narrow.text(headers=headers) == narrow.text(headers=headers, wide=True)


def test_columns_that_people_look_up_are_never_cut() -> None:
    """Such as reason codes, of which a part is worth nothing."""
    table = Table(("NODE", "REASON", "NAMES"), [("n1", "x" * 100, "y" * 60)], whole=("REASON",))
    assert table.text().splitlines()[1].split() == ["n1", "x" * 100, "y" * 11 + "…"]


def test_a_table_of_many_columns_keeps_each_readable() -> None:
    """Such a table may be wider, and no cell is cut to nothing."""
    table = Table([f"C{number}" for number in range(20)], [["v" * 30] * 20])
    assert set(table.text().splitlines()[1].split()) == {"v" * 11 + "…"}


def test_an_empty_table_has_only_headers() -> None:
    """Nothing is cut."""
    assert Table(("A", "B"), []).text() == "A    B\n"
