"""Waiting for what only the API server knows."""

import asyncio
from collections.abc import Awaitable, Callable

_INTERVAL_S = 0.02


async def until(holds: Callable[[], Awaitable[bool]], *, what: str, seconds: float) -> None:
    """Ask until it holds; the benchmark ends in words where it does not within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 -- the API server tells of it only when it is asked
                await asyncio.sleep(_INTERVAL_S)
    except TimeoutError:
        raise SystemExit(f"{what}: waited {seconds:g} s in vain") from None
