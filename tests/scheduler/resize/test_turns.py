"""Namespaces take turns."""

import asyncio

from scheduler.resize.turns import Turns


def taken(turns: Turns) -> list[tuple[str, str]]:
    """Return the pods in the order in which they are taken, each ended before the next."""
    order = []
    while (pod := turns.take()) is not None:
        order.append(pod)
        turns.end(pod[0])
    return order


def test_a_namespace_with_many_pods_delays_no_other() -> None:
    """The pod of another namespace comes second, whatever was there before it."""
    turns = Turns()
    for number in range(1000):
        turns.add("many", f"m{number}")
    turns.add("one", "o")
    order = taken(turns)
    assert order[:3] == [("many", "m0"), ("one", "o"), ("many", "m1")]
    assert (len(order), len(turns)) == (1001, 0)


def test_a_pod_waits_once() -> None:
    """However often it changes meanwhile, and not at all once it has ended."""
    turns = Turns()
    for _ in range(3):
        turns.add("a", "p")
    turns.add("a", "gone")
    turns.drop("a", "gone")
    turns.drop("b", "unknown")
    assert taken(turns) == [("a", "p")]


def test_a_namespace_has_one_pod_at_a_time() -> None:
    """A write that does not end holds up the pods of its namespace only."""
    turns = Turns()
    turns.add("a", "p")
    turns.add("a", "q")
    turns.add("b", "r")
    assert turns.take() == ("a", "p")
    assert turns.take() == ("b", "r")
    assert turns.take() is None
    turns.end("a")
    assert turns.take() == ("a", "q")


async def test_waiting_ends_with_the_next_pod() -> None:
    """Or when a namespace is free again."""
    turns = Turns()
    assert turns.take() is None
    waiting = asyncio.create_task(turns.wait(20.0))
    await asyncio.sleep(0)
    turns.add("a", "p")
    await asyncio.wait_for(waiting, 1.0)
    assert turns.take() == ("a", "p")
    turns.add("a", "q")
    assert turns.take() is None
    waiting = asyncio.create_task(turns.wait(20.0))
    await asyncio.sleep(0)
    turns.end("a")
    await asyncio.wait_for(waiting, 1.0)
