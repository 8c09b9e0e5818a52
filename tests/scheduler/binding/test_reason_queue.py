"""Reasons are published in turns of the namespaces, and only the last ones of a pod."""

from __future__ import annotations

from scheduler.binding.reason_queue import ReasonQueue
from scheduler.cycle.result import Unschedulable
from scheduler.queue.entry import Entry
from tests.scheduler.support.builders import pod
from tests.scheduler.support.order import NoOrder


def entry(name: str, namespace: str) -> Entry:
    """Return a waiting pod."""
    made = pod(name, namespace=namespace)
    return Entry(made, NoOrder().key(made), (0, "", 0), since=0.0)


def result(note: str) -> Unschedulable:
    """Return the result of a cycle."""
    return Unschedulable(note, frozenset({"reason"}))


async def test_namespaces_take_turns() -> None:
    """The only pod of one namespace waits for one of another, not for all."""
    queue = ReasonQueue()
    for number in range(5):
        queue.put(entry(f"many-{number}", "many"), result("no"))
    queue.put(entry("one", "few"), result("no"))
    names = [(await queue.get())[0].pod.metadata.name for _ in range(6)]
    assert names == ["many-0", "one", "many-1", "many-2", "many-3", "many-4"]


async def test_only_the_last_result_of_a_pod_is_published() -> None:
    """In the place of the first."""
    queue = ReasonQueue()
    first, second = entry("first", "team"), entry("second", "team")
    for each, note in ((first, "old"), (second, "other"), (first, "new")):
        queue.put(each, result(note))
    assert [(found.pod.metadata.name, given.note) for found, given in (await queue.get(), await queue.get())] == [
        ("first", "new"),
        ("second", "other"),
    ]
