"""Who is next, and who waits for what."""

import asyncio

import pytest

from scheduler.queue import Cure, Entry, Queue
from tests.scheduler.builders import Clock, pod


def make(clock: Clock) -> Queue:
    """Answer a queue with pauses of 1 to 8 seconds."""
    return Queue(clock=clock, first_backoff=1.0, longest_backoff=8.0)


async def next_name(queue: Queue) -> str:
    """Answer who is next; fails at once where nobody is."""
    return (await popped(queue)).pod.metadata.name


async def popped(queue: Queue) -> Entry:
    """Pop, or fail."""
    async with asyncio.timeout(1):
        return await queue.pop()


async def nobody(queue: Queue) -> bool:
    """Whether nobody is to be decided now."""
    waiting = asyncio.create_task(queue.pop())
    for _ in range(5):
        await asyncio.sleep(0)
    if waiting.done():
        return False
    waiting.cancel()
    return True


async def test_priority_comes_before_age_and_age_before_arrival() -> None:
    """A pod of higher priority goes first, then the older one, then the one that was seen first."""
    queue = make(Clock())
    queue.add(pod("late", created="2026-01-01T00:00:02Z"))
    queue.add(pod("early", created="2026-01-01T00:00:01Z"))
    queue.add(pod("twin", created="2026-01-01T00:00:01Z"))
    queue.add(pod("important", created="2026-01-01T00:00:03Z", priority=10))
    assert [await next_name(queue) for _ in range(4)] == ["important", "early", "twin", "late"]


async def test_a_pod_that_did_not_fit_waits_for_its_cure() -> None:
    """Only what may help wakes it."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    queue.fail(await popped(queue), Cure.CAPACITY)
    clock.now += 100
    queue.wake(Cure.NODE)
    assert await nobody(queue)
    queue.wake(Cure.CAPACITY)
    assert await next_name(queue) == "a"


async def test_pauses_double_up_to_a_limit() -> None:
    """A pod that was just tried is not tried again at once, even if something might have helped."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    for pause in (1, 2, 4, 8, 8):
        queue.fail(await popped(queue), Cure.CAPACITY)
        queue.wake(Cure.CAPACITY)
        clock.now += pause - 0.01
        assert await nobody(queue)
        clock.now += 0.02


async def test_a_pause_ends_by_itself() -> None:
    """Nobody has to come by: the queue's own timer ends the pause of a woken pod."""
    queue = Queue(clock=asyncio.get_running_loop().time, first_backoff=0.01, longest_backoff=1.0)
    queue.add(pod("a"))
    queue.retry(await popped(queue))
    assert await next_name(queue) == "a"


async def test_a_pod_that_left_is_not_decided() -> None:
    """Deleted while it waits, while it is due, and while it is being decided."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("due"))
    queue.remove("uid-due")
    assert await nobody(queue)
    queue.add(pod("deciding"))
    entry = await popped(queue)
    queue.remove("uid-deciding")
    queue.fail(entry, Cure.CAPACITY)
    queue.wake(Cure.CAPACITY)
    clock.now += 100
    assert await nobody(queue)
    assert len(queue) == 0


async def test_a_pod_that_came_back_under_its_uid_is_decided_once() -> None:
    """Seen, removed and seen again before anybody popped it: one entry, not two."""
    queue = make(Clock())
    queue.add(pod("a"))
    queue.remove("uid-a")
    queue.add(pod("a"))
    assert await next_name(queue) == "a"
    assert await nobody(queue)


async def test_a_change_of_the_pod_itself_may_be_its_cure() -> None:
    """A toleration that is added lets a held pod be tried again."""
    queue = make(Clock())
    queue.add(pod("a"))
    queue.fail(await popped(queue), Cure.NOTHING)
    queue.add(pod("a"))
    assert await nobody(queue)
    queue.add(pod("a", tolerations=[{"key": "x", "operator": "Exists"}]))
    assert await next_name(queue) == "a"


@pytest.mark.parametrize("cure", [Cure.CAPACITY, Cure.NODE])
async def test_everything_is_cured_by_anything(cure: Cure) -> None:
    """A pod that may be helped in any way is woken by each."""
    clock = Clock()
    queue = make(clock)
    queue.add(pod("a"))
    queue.fail(await popped(queue), Cure.EVERYTHING)
    clock.now += 100
    queue.wake(cure)
    assert await next_name(queue) == "a"
