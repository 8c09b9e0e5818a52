"""Computations in steps: they can be interrupted between steps, so that they never block an event loop for long.

Everything that a computation has read may change between two steps. It must therefore make and reserve its decision
within one step, which `Exclusive` enforces.
"""

from collections.abc import Generator
from typing import Final, TypeVar, cast

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that yields where it can be interrupted, and returns its result."""

_exclusive: Final[list[str]] = []
"""What is being done in one step."""


class InterruptionError(RuntimeError):
    """A computation yielded inside of what has to be one step."""


class Exclusive:
    """A context in which something is done in one step: `advance` raises an error where a computation yields inside."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        """Do `what`, for the text of the error."""
        self._what = what

    def __enter__(self) -> None:
        _exclusive.append(self._what)

    def __exit__(self, *_: object) -> None:
        _exclusive.pop()


def advance(steps: Steps[T]) -> None:
    """Run one step of `steps`, after which the computation may be interrupted.

    Raises:
        StopIteration: it was the last step; the value is the result.
        InterruptionError: the step ended inside of what has to be one step.
    """
    next(steps)
    if _exclusive:
        steps.throw(InterruptionError(f"{_exclusive[-1]} has to be one step, so nothing may yield before its end"))


def finish(steps: Steps[T]) -> T:
    """Run `steps` to their end without interruption and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)
