"""A reader that adds up the differences has the rows of now, however seldom it looks."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.ui.table import Difference, Table

KEYS = st.sampled_from([f"team-{index % 3}/pod-{index}" for index in range(7)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(min_size=1, max_size=2)),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.just("retain"), st.frozensets(KEYS)),
        st.tuples(st.just("read"), st.integers(0, 2)),
    ),
    max_size=60,
)


class Reader:
    """The rows of a page."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[str, bytes] = {}

    def read(self, difference: Difference) -> None:
        """Apply a difference as the page does."""
        if difference.is_complete:
            self.rows.clear()
        self.rows.update({key: row.content for key, row in difference.rows})
        for key, _ in difference.removed:
            self.rows.pop(key, None)  # it may have come and gone since
        self.version = difference.version


@given(STEPS, st.integers(1, 5))
def test_differences_add_up_to_the_rows(steps: list[tuple[str, object]], remembered: int) -> None:
    """Readers at different paces all have the same rows; some miss more removals than are remembered."""
    table, rows, readers = Table(remembered=remembered), dict[str, bytes](), [Reader() for _ in range(3)]
    for step in [*steps, ("read", 0), ("read", 1), ("read", 2)]:
        match step:
            case ("put", str(key), bytes(content)):
                table.put(key, content, namespace=key.partition("/")[0])
                rows[key] = content
            case ("remove", str(key)):
                table.remove(key)
                rows.pop(key, None)
            case ("retain", frozenset() as keys):
                table.retain(keys)
                rows = {key: content for key, content in rows.items() if key in keys}
            case ("read", int(number)):
                readers[number].read(table.since(readers[number].version))
                assert readers[number].rows == rows
    assert len(table) == len(rows)


def test_an_equal_row_is_not_sent_again() -> None:
    """Its version stays, so that a reader has nothing to read."""
    table = Table()
    table.put("a", b"1")
    table.put("b", b"1")
    seen = table.version
    table.put("a", b"1")
    assert table.version == seen
    table.put("a", b"2")
    assert [key for key, _ in table.since(seen).rows] == ["a"]


def test_the_namespace_of_a_removed_row_is_known() -> None:
    """So that only those are informed of the removal who could see the row."""
    table = Table()
    table.put("team/a", b"1", namespace="team")
    seen = table.version
    table.remove("team/a")
    assert table.since(seen).removed == (("team/a", "team"),)


def test_a_version_of_another_table_is_not_trusted() -> None:
    """A reader that claims to have seen more than there is gets all rows."""
    table = Table()
    table.put("a", b"1")
    assert table.since(99).is_complete
