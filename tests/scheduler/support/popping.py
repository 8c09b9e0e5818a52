"""Pods that are due in a scheduling queue."""

import asyncio

from scheduler.queue.entry import Entry
from scheduler.queue.scheduling_queue import SchedulingQueue


async def due(queue: SchedulingQueue) -> Entry | None:
    """Pop a pod if one is due, else return None."""
    popping = asyncio.create_task(queue.pop())
    for _ in range(5):
        await asyncio.sleep(0)
    if popping.done():
        return popping.result()
    popping.cancel()
    return None
