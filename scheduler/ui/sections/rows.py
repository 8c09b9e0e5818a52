"""Rows from objects: what most sections do with a table."""

from collections.abc import Iterable
from typing import Final

import msgspec

from allocation.steps import Steps
from scheduler.ui.table import Table

LONGEST_TEXT: Final = 1024
"""As long as the note of an event can be; longer texts are cut."""
_STEP: Final = 50

Keyed = tuple[str, str, msgspec.Struct]
"""Key, namespace and content of a row."""


def fill(table: Table, rows: Iterable[Keyed]) -> Steps[None]:
    """Make these the rows of a table. The objects may change between two steps; the next refresh shows it."""
    keys = set[str]()
    for number, (key, namespace, content) in enumerate(rows, start=1):
        table.put(key, msgspec.json.encode(content), namespace=namespace)
        keys.add(key)
        if number % _STEP == 0:
            yield
    table.retain(keys)
