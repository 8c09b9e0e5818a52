"""The owner of a node's lock, and whether the lock is still needed (HAMi's rules 2.4)."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.names import HAMI_BIND_PHASE
from scheduler.binding import node_lock
from scheduler.binding.node_lock import EXPIRY_SECONDS, NodeLock
from tests.scheduler.support.builders import pod

OURS = NodeLock("2026-08-21T08:20:39Z,default,p", "default", "p")


def reason(lock: NodeLock = OURS, *, holder: str = "", is_ours: bool = True, age: float = 0, **fields: Any) -> str:
    """Return why a lock on node n1 is not needed if its pod has these fields."""
    owner = pod("p", **fields) if fields.pop("exists", True) else None
    return node_lock.dangling(lock, owner, node="n1", holder=holder, is_ours=is_ours, age_seconds=age)


def test_a_lock_is_written_as_hamis_plugin_reads_it() -> None:
    """RFC 3339 in whole seconds, namespace, pod."""
    east = timezone(timedelta(hours=8))
    text = node_lock.write(pod("train-0", namespace="team-a"), datetime(2026, 8, 21, 16, 20, 39, 5, tzinfo=east))
    assert text == "2026-08-21T08:20:39Z,team-a,train-0"
    assert node_lock.read(text) == NodeLock(text, "team-a", "train-0")


@given(st.text())
def test_any_value_is_a_lock(text: str) -> None:
    """HAMi's old format is a bare time; an unreadable value names no pod and lasts until it expires."""
    lock = node_lock.read(text)
    assert lock.text == text
    if text.count(",") != 2:
        assert lock == NodeLock(text)
        assert reason(lock, exists=False) == ""
        assert reason(lock, exists=False, age=EXPIRY_SECONDS)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_lock_dangles_when_its_pod_needs_it_no_more(is_ours: bool) -> None:  # noqa: FBT001 -- a parameter of pytest
    """A former leader was killed and no process binds the pod, or the lock was for another pod of the same name."""
    success, failure = ({HAMI_BIND_PHASE: phase} for phase in ("success", "failed"))
    assert reason(is_ours=is_ours, exists=False) == "its pod is gone"
    assert reason(is_ours=is_ours, phase="Failed", node="n1") == "its pod has finished"
    assert reason(is_ours=is_ours, node="n2") == "its pod runs on node n2"
    assert reason(is_ours=is_ours, node="n1", annotations=success) == "its pod was served"
    assert reason(is_ours=is_ours, node="n1", annotations=failure) == "its pod was served"
    assert reason(is_ours=is_ours, node="n1", annotations={HAMI_BIND_PHASE: "allocating"}) == ""


def test_a_lock_of_ours_is_owned_by_a_uid() -> None:
    """A former leader was killed and no process binds the pod, or the lock was for another pod of the same name."""
    assert reason() == "its pod is not being bound"
    assert reason(holder="uid-p") == ""
    assert reason(holder="uid-before") == "its pod is another one of the same name"


def test_locks_of_hamis_scheduler_stay_for_five_minutes() -> None:
    """It locks before it binds; HAMi itself waits for five minutes."""
    assert reason(is_ours=False) == ""
    assert reason(is_ours=False, age=EXPIRY_SECONDS - 1) == ""
    assert reason(is_ours=False, age=EXPIRY_SECONDS)


def test_every_lock_expires() -> None:
    """A plugin that never responds does not block its node for ever."""
    assert reason(holder="uid-p", age=EXPIRY_SECONDS) == f"it has been there for {EXPIRY_SECONDS} s"
