"""Writes many objects, some at a time, as long as this replica is trusted to lead."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_AT_ONCE: Final = 16


async def write_each(
    write: Callable[[T], Awaitable[object]], items: Iterable[T], *, is_trusted: Callable[[], bool]
) -> None:
    """Call `write` for each item; items whose turn comes when the replica is not trusted any more are left out."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> None:
        async with slots:
            if is_trusted():
                await write(item)

    await asyncio.gather(*map(one, items))
