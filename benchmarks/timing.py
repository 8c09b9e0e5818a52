"""Times computations in steps: the whole, and the longest step, for which everything else has to wait."""

import time
from typing import TypeVar

import msgspec

from allocation.steps import Steps

T = TypeVar("T")


class Timed(msgspec.Struct, frozen=True):
    """How long a computation takes, and the processor time of its longest step, in seconds."""

    total: float
    longest_step: float


def timed(steps: Steps[T]) -> tuple[Timed, T]:
    """Run `steps` to their end and return their result, too."""
    begin, longest = time.perf_counter(), 0.0
    while True:
        step = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            longest = max(longest, time.thread_time() - step)
            return Timed(time.perf_counter() - begin, longest), end.value
        longest = max(longest, time.thread_time() - step)
