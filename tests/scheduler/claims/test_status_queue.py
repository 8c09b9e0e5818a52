"""The queue of statuses to write: none is lost that a watch must see, and none is kept of a claim that is gone."""

import asyncio

import pytest

from cluster.gpu_claim import GpuClaimStatus, Phase
from scheduler.claims.status_queue import StatusQueue

ONE, TWO = ("default", "one"), ("default", "two")


def status(phase: Phase, message: str = "") -> GpuClaimStatus:
    """Return a status in a phase."""
    return GpuClaimStatus(phase=phase, message=message)


async def test_claims_come_in_the_order_of_their_changes() -> None:
    """Each once, however often it changed; whoever waits is woken."""
    queue = StatusQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    for name in (ONE, TWO, ONE):
        queue.put(name)
    assert await asyncio.wait_for(waiting, 1) == (ONE, None)
    assert (ONE in queue, TWO in queue) == (False, True)
    assert await queue.get() == (TWO, None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.01)


async def test_the_last_status_of_each_phase_comes_before_the_current_one() -> None:
    """A phase that comes again takes the place of all since it was there."""
    queue = StatusQueue()
    queue.keep(ONE, status("Pending"))
    assert ONE not in queue
    queue.put(ONE)
    for phase, message in (("Pending", "a"), ("Reserved", "b"), ("Reserved", "c")):
        queue.keep(ONE, status(phase, message))
    assert [await queue.get() for _ in range(3)] == [
        (ONE, status("Pending", "a")),
        (ONE, status("Reserved", "c")),
        (ONE, None),
    ]
    queue.put(ONE)
    for phase, message in (("Pending", "a"), ("Reserved", "b"), ("Pending", "c")):
        queue.keep(ONE, status(phase, message))
    assert [await queue.get() for _ in range(2)] == [(ONE, status("Pending", "c")), (ONE, None)]


async def test_what_could_not_be_written_comes_first_again() -> None:
    """Unless a later status of its phase waits by now."""
    queue = StatusQueue()
    queue.put_back(ONE, status("Reserved", "late"))
    assert await queue.get() == (ONE, status("Reserved", "late"))
    queue.keep(ONE, status("Reserved", "new"))
    queue.put_back(ONE, status("Pending", "first"))
    queue.put_back(ONE, status("Reserved", "late"))
    assert [await queue.get() for _ in range(3)] == [
        (ONE, status("Pending", "first")),
        (ONE, status("Reserved", "new")),
        (ONE, None),
    ]


def test_nothing_is_kept_of_a_claim_that_is_gone() -> None:
    """Others stay."""
    queue = StatusQueue()
    queue.put(ONE)
    queue.put(TWO)
    queue.drop(ONE)
    queue.drop(ONE)
    assert (ONE in queue, TWO in queue) == (False, True)
