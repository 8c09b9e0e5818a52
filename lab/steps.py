"""One line for each step: what, the outcome, and how long it took."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Time the block and print its line when it ends.

    The block appends what is worth saying to the list. A step that fails says so, and its error goes on.
    """
    outcome: list[str] = []
    began = time.monotonic()
    try:
        yield outcome
    except BaseException:
        _print(name, "failed", began)
        raise
    _print(name, ", ".join(outcome) or "done", began)


def _print(name: str, outcome: str, began: float) -> None:
    print(f"{name:<16} {outcome:<64} {time.monotonic() - began:6.1f} s", flush=True)
