"""What is desired for queues of several tiers, in examples and for random queues."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.desired import Demand, desired, is_short, precedence
from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.fairness.shares import Amounts


def slots(number: int) -> Amounts:
    """Return amounts of slots only."""
    return 0, 0, number, 0, 0, 0


def demand(name: str, *, each: int, pods: int, **spec: Any) -> Demand:
    """Return the demand of a queue for pods of `each` slots."""
    return Demand(QueueKey(name), msgspec.convert(spec, QueueSpec), slots(each * pods), pods)


def granted(total: int, *demands: Demand, created: Mapping[str, str] = {}) -> list[int]:
    """Return the slots that each demand gets, in the order in which the demands are given."""
    first = sorted(demands, key=lambda each: precedence(each.key, each.spec, created.get(each.key.name, "")))
    by_queue = dict(desired(first, slots(total)))
    return [by_queue[each.key][2] for each in demands]


def test_the_lowest_tier_gets_what_the_higher_ones_leave() -> None:
    """Of 22 slots two queues of priority 100 want 8 and 6: 8 of the 20 that the third wants are left."""
    a = demand("a", each=2, pods=4, priority=100)
    b = demand("b", each=2, pods=3, priority=100)
    c = demand("c", each=4, pods=5, priority=10)
    assert granted(22, a, b, c) == [8, 6, 8]
    assert granted(22, c, b, a) == [8, 6, 8]


def test_of_one_tier_the_oldest_queue_comes_first() -> None:
    """Of 4 slots the oldest gets all, and the others nothing."""
    a = demand("a", each=2, pods=4, priority=100)
    b = demand("b", each=2, pods=3, priority=100)
    c = demand("c", each=4, pods=5, priority=10)
    created = {"a": "2026-01-02T00:00:00Z", "b": "2026-01-01T00:00:00Z", "c": "2025-01-01T00:00:00Z"}
    assert granted(4, a, b, c, created=created) == [0, 4, 0]


@pytest.mark.parametrize(
    ("spec", "pods", "wanted"),
    [
        ({}, 3, 6),
        ({"maxInstances": 2}, 3, 4),
        ({"minInstances": 2}, 3, 6),
        ({"maxInstances": 0}, 3, 0),
        ({"batchSize": 2}, 1, 0),
        ({"batchSize": 2}, 2, 4),
        ({"batchSize": 2}, 5, 8),
        ({"batchSize": 3, "maxInstances": 3}, 8, 6),
    ],
)
def test_demand_is_counted_in_whole_batches_between_the_least_and_the_most_instances(
    spec: dict[str, Any], pods: int, wanted: int
) -> None:
    """Pods of two slots each; one pod of a batch of two does not count."""
    assert granted(100, demand("a", each=2, pods=pods, **spec)) == [wanted]


def test_the_least_instances_are_desired_even_if_fewer_wait() -> None:
    """Two pods of two slots stand for the size of four."""
    assert granted(100, demand("a", each=2, pods=2, minInstances=4)) == [8]


def test_a_queue_is_short_of_any_resource_of_which_it_has_less() -> None:
    """Enough of the others does not help."""
    assert is_short((8, 8, 1, 0, 0, 0), (4, 4, 2, 0, 0, 0))
    assert not is_short((8, 8, 2, 0, 0, 0), (4, 4, 2, 0, 0, 0))


PODS = st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 3), st.integers(1, 3))


@given(st.lists(PODS, max_size=6), st.integers(0, 60))
def test_no_more_is_desired_than_there_is(queues: list[tuple[int, int, int, int]], total: int) -> None:
    """What all queues would have is at most the total, and all of it as long as a queue wants more."""
    demands = [
        demand(f"q{number}", each=each, pods=pods, priority=priority, batchSize=batch)
        for number, (each, pods, priority, batch) in enumerate(queues)
    ]
    wanted = sum(each.clamped()[2] for each in demands)
    assert sum(granted(total, *demands)) == min(total, wanted)
