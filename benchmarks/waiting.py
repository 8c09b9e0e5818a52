"""Waiting for a condition that only the API server knows."""

import asyncio
from collections.abc import Awaitable, Callable

_INTERVAL_S = 0.02


async def until(holds: Callable[[], Awaitable[bool]], *, what: str, seconds: float, every: float = _INTERVAL_S) -> None:
    """Poll, `every` seconds, until the condition holds; end the benchmark with an error after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 -- the API server has no event for it
                await asyncio.sleep(every)
    except TimeoutError:
        raise SystemExit(f"timed out after {seconds:g} s waiting for {what}") from None
