"""Rows by key that readers follow at their own pace: each row has the version that changed it last.

A reader keeps one number, the version that it has seen; what it missed is the rows after that version. So nothing is
queued for a slow reader, however much changes, and one that comes back misses nothing.
"""

from collections.abc import Collection
from typing import Final

import msgspec

_REMEMBERED: Final = 4096
"""The removals that are remembered; a reader that missed more of them gets all rows again."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row in JSON, and the namespace whose users may see it; empty if every reader may."""

    version: int
    content: bytes
    namespace: str


class Removal(msgspec.Struct, frozen=True, gc=False):
    """A row that is gone; the namespace is the one that it had."""

    version: int
    namespace: str


class Difference(msgspec.Struct, frozen=True):
    """What makes of the rows that a reader has those of now.

    Attributes:
        version: the version that the reader has afterwards.
        is_complete: whether these are all rows, so that the reader drops those that it has.
        rows: the new and changed rows, the oldest change first.
        removed: the keys that are gone, with their namespaces.
    """

    version: int
    is_complete: bool
    rows: tuple[tuple[str, Row], ...]
    removed: tuple[tuple[str, str], ...]


class Table:
    """The rows, in the order of their last changes.

    Attributes:
        version: grows with each change; 0 of a table that never had rows.
    """

    def __init__(self, *, remembered: int = _REMEMBERED) -> None:
        """Begin without rows, and remember this number of removals."""
        self.version = 0
        self._rows: dict[str, Row] = {}
        self._removed: dict[str, Removal] = {}
        self._remembered = remembered
        self._complete_since = 0
        """No removal after this version is forgotten."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def put(self, key: str, content: bytes, *, namespace: str = "") -> None:
        """Add a row, or replace its content; an equal one keeps its version. A key always has the same namespace."""
        row = self._rows.get(key)
        if row is not None and row.content == content:
            return
        self.version += 1
        self._rows.pop(key, None)
        self._removed.pop(key, None)
        self._rows[key] = Row(self.version, content, namespace)

    def remove(self, key: str) -> None:
        """Remove a row, if it is there."""
        row = self._rows.pop(key, None)
        if row is None:
            return
        self.version += 1
        self._removed[key] = Removal(self.version, row.namespace)
        if len(self._removed) > self._remembered:
            self._complete_since = self._removed.pop(next(iter(self._removed))).version

    def retain(self, keys: Collection[str]) -> None:
        """Remove all rows but those of `keys`."""
        for key in self._rows.keys() - keys:
            self.remove(key)

    def since(self, version: int) -> Difference:
        """Return what changed after a version; everything for a reader that has none (0), or misses too much."""
        if not 0 < version <= self.version or version < self._complete_since:
            return Difference(self.version, is_complete=True, rows=tuple(self._rows.items()), removed=())
        rows: list[tuple[str, Row]] = []
        for key, row in reversed(self._rows.items()):
            if row.version <= version:
                break
            rows.append((key, row))
        removed: list[tuple[str, str]] = []
        for key, removal in reversed(self._removed.items()):
            if removal.version <= version:
                break
            removed.append((key, removal.namespace))
        return Difference(self.version, is_complete=False, rows=tuple(reversed(rows)), removed=tuple(removed))
