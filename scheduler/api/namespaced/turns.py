"""Limits the share of the event loop that queries get, so that scheduling always has the rest."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final, TypeVar

from allocation.steps import Steps
from scheduler.pacing import Pacer

T = TypeVar("T")

_FREELY: Final = nullcontext()
_REST: Final = 9.0
"""Length of the rest after a computation, as a multiple of its length: queries take at most a tenth of the time."""


class FairTurns:
    """Computes responses one at a time, in slices, with a rest after each."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free_at = clock()
        self._lock = asyncio.Lock()

    async def parse(self, read: Callable[[], T]) -> T:
        """Wait for a turn, then run `read`, which takes no steps, in a thread."""
        async with self._turn():
            begin = self._clock()
            try:
                return await asyncio.to_thread(read)
            finally:
                self._free_at = self._clock() + _REST * (self._clock() - begin)

    async def take(
        self,
        begin: Callable[[], Steps[T]],
        *,
        within: AbstractAsyncContextManager[object] = _FREELY,
        most_seconds: float = math.inf,
    ) -> T:
        """Wait for a turn, then run the steps that `begin` returns in the context `within`, and return their result.

        The context is entered when the turn has come, so that nothing waits for the rest after an earlier turn.

        Raises:
            TimeoutError: the steps have taken more than `most_seconds`.
        """
        async with self._turn():
            pacer = Pacer()
            try:
                async with within:
                    return await pacer.run(begin(), most_seconds=most_seconds)
            finally:
                self._free_at = self._clock() + _REST * pacer.spent

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._free_at - self._clock()))
            yield
