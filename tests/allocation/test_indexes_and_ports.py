"""Indexes and ports are unique among live pods, and can be recorded again after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.errors import AllocationError
from allocation.indexes import Indexes
from allocation.ports import Ports

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 140).map(str)), max_size=300)


@given(STEPS)
def test_indexes_are_unique_among_live_pods(steps: list[tuple[bool, str]]) -> None:
    """Each is from 1 to 128; a pod keeps its own; without a free one there is an error."""
    indexes, live = Indexes(), dict[str, int]()
    for assigns, uid in steps:
        if not assigns:
            indexes.release(uid)
            live.pop(uid, None)
        elif uid in live or len(live) < 128:
            index = indexes.assign(uid)
            assert live.setdefault(uid, index) == index
        else:
            with pytest.raises(AllocationError, match="all indexes from 1 to 128"):
                indexes.assign(uid)
        assert len(set(live.values())) == len(live)
        assert all(1 <= index <= 128 for index in live.values())


def test_indexes_go_around() -> None:
    """A released index is used again only after the last one."""
    indexes = Indexes()
    assert [indexes.assign(str(pod)) for pod in range(127)] == [*range(1, 128)]
    indexes.release("0")
    indexes.release("5")
    assert [indexes.assign("a"), indexes.assign("b"), indexes.assign("c")] == [128, 1, 6]
    with pytest.raises(AllocationError, match="pod d waits for one"):
        indexes.assign("d")


@given(STEPS)
def test_ports_are_the_lowest_free_ones(steps: list[tuple[bool, str]]) -> None:
    """The end of the range is not assigned; without a free port there is an error."""
    ports, live = Ports(40_000, 40_100), dict[str, int]()
    for assigns, uid in steps:
        if not assigns:
            ports.release(uid)
            live.pop(uid, None)
            continue
        free = sorted({*range(40_000, 40_100)} - {*live.values()})
        if uid in live:
            assert ports.assign(uid) == live[uid]
        elif free:
            assert ports.assign(uid) == free[0]
            live[uid] = free[0]
        else:
            with pytest.raises(AllocationError, match="all ports from 40000 to 40099"):
                ports.assign(uid)


def test_what_pods_had_before_a_restart_is_not_assigned_again() -> None:
    """Recording it twice changes nothing; what cannot be is refused."""
    indexes, ports = Indexes(), Ports(100, 103)
    for _ in range(2):
        indexes.restore("a", 1)
        ports.restore("a", 100)
    assert (indexes.assign("b"), ports.assign("b")) == (2, 101)
    assert (indexes.assign("a"), ports.assign("a")) == (1, 100)
    for uid, index, port in (("c", 1, 100), ("a", 3, 102), ("c", 0, 99), ("c", 129, 103)):
        with pytest.raises(AllocationError):
            indexes.restore(uid, index)
        with pytest.raises(AllocationError):
            ports.restore(uid, port)
    assert ports.assign("c") == 102


@pytest.mark.parametrize(("start", "end"), [(0, 10), (10, 10), (11, 10), (1, 65537)])
def test_range_without_ports_is_refused(start: int, end: int) -> None:
    """The message has the range."""
    with pytest.raises(AllocationError, match=f"ports from {start} to {end}"):
        Ports(start, end)
