"""Computations in steps: they can be interrupted between steps, so that they never block an event loop for long.

Everything that a computation has read may change between two steps. It must therefore make and reserve its decision
within one step.
"""

from collections.abc import Callable, Generator
from typing import TypeVar, cast

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that yields where it can be interrupted, and returns its result."""


def one_step(run: Callable[[], T]) -> Steps[T]:
    """Return a computation of one step."""
    yield from ()
    return run()


def finish(steps: Steps[T]) -> T:
    """Run `steps` to their end without interruption and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
