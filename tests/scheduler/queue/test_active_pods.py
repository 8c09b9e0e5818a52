"""The active pods of one queue: the first of them, whichever of them leave."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.queue_spec import QueueKey
from scheduler.queue.active_pods import ActivePods
from scheduler.queue.entry import Entry
from tests.scheduler.support.builders import pod


def _entry(number: int, *, priority: int = 0) -> Entry:
    return Entry(pod(f"p{number}"), QueueKey(name="q"), (-priority, "2026-01-01T00:00:00Z", number), since=0.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=80))
def test_first_pod_is_the_smallest_whichever_were_removed(changes: list[tuple[int, bool]]) -> None:
    """Pods are added and removed, the first one and others, also again after they were removed."""
    entries = [_entry(number, priority=number % 3) for number in range(10)]
    active, expected = ActivePods(), set[int]()
    for number, removes_first in changes:
        if removes_first and active.first is not None:
            number = entries.index(active.first)  # noqa: PLW2901 -- the first pod is the one that mostly leaves
        if number in expected:
            active.remove(entries[number])
        else:
            active.add(entries[number])
        expected ^= {number}
        first = min((entries[each] for each in expected), key=lambda entry: entry.order, default=None)
        assert active.first is first


def test_removed_pods_are_not_kept_behind_a_first_one_that_stays() -> None:
    """As many as there are pods may be kept, and no more."""
    active, entries = ActivePods(), [_entry(number) for number in range(100)]
    unreferenced = [sys.getrefcount(each) for each in entries]
    for each in entries:
        active.add(each)
    for each in entries[10:]:
        active.remove(each)
    assert active.first is entries[0]
    references = [sys.getrefcount(each) for each in entries]
    assert sum(now > before for now, before in zip(references, unreferenced, strict=True)) <= 2 * 10
