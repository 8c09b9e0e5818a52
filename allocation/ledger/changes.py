"""A bounded log of changed rows, which readers follow at their own pace."""

_KEPT = 4096


class Changes:
    """Rows in the order of their changes. A mark is a position in the log; old entries are dropped.

    A change that only takes capacity is logged as the row's complement (`~row`): a reader that found the row infeasible
    need not evaluate it again.
    """

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._others = 0
        self._dropped = 0
        self._valid_from = 0

    @property
    def mark(self) -> int:
        """The current end of the log."""
        return self._dropped + len(self._rows)

    def add(self, row: int, *, taken: bool = False) -> None:
        """Log a change of `row`; `taken` if it only takes capacity."""
        self._rows.append(~row if taken else row)
        if len(self._rows) > 2 * _KEPT:
            del self._rows[:_KEPT]
            self._dropped += _KEPT

    def add_other(self) -> None:
        """Log a change of something that has no row."""
        self._others += 1

    @property
    def state(self) -> tuple[int, int]:
        """A value that stays equal until anything changes."""
        return self.mark, self._others

    def reset(self) -> None:
        """Invalidate all marks, because rows now belong to other nodes."""
        self._dropped = self._valid_from = self.mark + 1
        self._rows.clear()

    def reaches(self, mark: int) -> bool:
        """Whether the log has all changes since `mark`; a reader without a mark passes a negative one."""
        return mark >= 0 and mark >= self._dropped and mark >= self._valid_from

    def since(self, mark: int) -> set[int] | None:
        """Return the entries since `mark`; None if the log does not reach so far: everything may have changed."""
        if not self.reaches(mark):
            return None
        return set(self._rows[mark - self._dropped :])
