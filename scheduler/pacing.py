"""Runs long computations in short slices, between which other tasks run, above all the renewal of the Lease."""

import asyncio
import math
import time
from typing import Final, TypeVar, cast

from allocation.steps import Steps, advance

T = TypeVar("T")

SLICE_SECONDS: Final = 0.01
"""The length of a slice. A single step is shorter at 5,000 nodes (`benchmarks/steps.py`)."""


class Pacer:
    """Interrupts computations whose slice is used up.

    Attributes:
        spent: the seconds that the last computation took, without interruptions.
    """

    def __init__(self, *, slice_seconds: float = SLICE_SECONDS) -> None:
        self._slice = slice_seconds
        self._begin = time.monotonic()
        self.spent = 0.0

    async def rest(self) -> None:
        """Let other tasks run if the slice is used up."""
        if time.monotonic() - self._begin >= self._slice:
            await asyncio.sleep(0)
            self._begin = time.monotonic()

    async def run(self, steps: Steps[T], *, most_seconds: float = math.inf) -> T:
        """Run `steps`, interrupted whenever a slice is used up, and return the result.

        Raises:
            TimeoutError: they have taken more than `most_seconds`, without interruptions; they were ended early.
        """
        self.spent = 0.0
        try:
            while True:
                begin = time.monotonic()
                try:
                    advance(steps)
                except StopIteration as end:
                    return cast("T", end.value)
                finally:
                    self.spent += time.monotonic() - begin
                if self.spent > most_seconds:
                    raise TimeoutError
                await self.rest()
        finally:
            steps.close()  # cancelled, they undo what they have done at once, not when their memory is freed
