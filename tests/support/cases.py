"""A test that loops over many cases names the one that failed: its report says which seed or row it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def case(**values: object) -> Iterator[None]:
    """Add these values to whatever the body raises."""
    try:
        yield
    except BaseException as error:  # pytest.fail and pytest.raises do not raise an Exception
        error.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in values.items()))
        raise
