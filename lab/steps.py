"""Print one line per step: its name, the outcome and the duration."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Time the block and print its line when it ends.

    The block appends its outcomes to the list. If it fails, the line says so and the error propagates.
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
