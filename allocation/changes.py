"""Which rows changed since somebody last looked: a log that readers follow at their own pace."""

_SHORTEST = 4096


class Changes:
    """Rows in the order in which they changed. A mark is a place in the log; older entries are dropped in time.

    A row of which only something was taken stands as its complement (`~row`): who found it unfit need not look again.
    """

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._others = 0
        self._dropped = 0
        self._valid_from = 0

    @property
    def mark(self) -> int:
        """Answer the present end."""
        return self._dropped + len(self._rows)

    def add(self, row: int, *, taken: bool = False) -> None:
        """Note that `row` changed, or that something of it was `taken`."""
        self._rows.append(~row if taken else row)
        if len(self._rows) > 2 * _SHORTEST:
            del self._rows[:_SHORTEST]
            self._dropped += _SHORTEST

    def add_other(self) -> None:
        """Note that something changed that has no row."""
        self._others += 1

    @property
    def state(self) -> tuple[int, int]:
        """Answer what stays the same as long as nothing changes at all."""
        return self.mark, self._others

    def start_anew(self) -> None:
        """Note that everything changed: rows mean other nodes from now on."""
        self._dropped = self._valid_from = self.mark + 1
        self._rows.clear()

    def since(self, mark: int) -> set[int] | None:
        """Answer the entries since `mark`, None where that cannot be told any more: everything may have changed."""
        if mark < self._dropped or mark < self._valid_from:
            return None
        return set(self._rows[mark - self._dropped :])
