"""Until when a pod is protected from preemption."""

from datetime import datetime
from typing import Any

import pytest

from allocation.names import PREEMPTION_PROTECTION
from scheduler.objects import Pod
from scheduler.preemption.eligibility import protected_until
from tests.scheduler.support.builders import pod

CREATED, STARTED = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
CREATION = datetime.fromisoformat(CREATED).timestamp()
START = CREATION + 300


def running(*, protection: str | None = None, started: str = "") -> Pod:
    """Return a pod that was created at `CREATED`."""
    annotations = {} if protection is None else {PREEMPTION_PROTECTION: protection}
    status: dict[str, Any] = {"startTime": started} if started else {}
    return pod("p", node="n1", phase="Running", created=CREATED, annotations=annotations, status=status)


def until(made: Pod, *, min_runtime: int = 0, longest: float = 3600.0) -> float | None:
    """Return until when a pod is protected."""
    return protected_until(made, min_runtime_seconds=min_runtime, longest_protection_seconds=longest)


def test_a_pod_without_annotation_and_minimal_run_time_is_not_protected() -> None:
    """This is what nearly every pod is."""
    assert until(running(started=STARTED)) is None


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600)])
def test_the_annotation_counts_from_the_creation(text: str, seconds: int) -> None:
    """At the second before its end the pod is protected, and at its end it is not."""
    end = until(running(protection=text, started=STARTED))
    assert end is not None
    assert CREATION + seconds - 1 < end
    assert not CREATION + seconds < end


@pytest.mark.parametrize("text", ["1h0m1s", "2h", "8760h"])
def test_no_pod_protects_itself_for_longer_than_the_setting(text: str) -> None:
    """Otherwise any user could keep cards for ever."""
    assert until(running(protection=text)) == CREATION + 3600
    assert until(running(protection=text), longest=0.0) == CREATION


@pytest.mark.parametrize("text", ["", "90", "soon", "-1h", "0s"])
def test_an_unreadable_annotation_protects_for_nothing(text: str) -> None:
    """A typing error must not become an endless protection."""
    assert until(running(protection=text)) is None


def test_the_minimal_run_time_counts_from_the_start() -> None:
    """The setting of the longest protection is for annotations, so it does not cut it."""
    assert until(running(started=STARTED), min_runtime=7200) == START + 7200


def test_the_minimal_run_time_of_a_pod_that_has_not_started_counts_from_its_creation() -> None:
    """Its node may never start it."""
    assert until(running(), min_runtime=600) == CREATION + 600


@pytest.mark.parametrize(("text", "end"), [("30m", CREATION + 1800), ("1m", START + 600)])
def test_the_later_of_both_counts(text: str, end: float) -> None:
    """Neither shortens the other."""
    assert until(running(protection=text, started=STARTED), min_runtime=600) == end


def test_a_start_in_the_year_0_protects_for_nothing() -> None:
    """The API server accepts it from a node, and Python has no such year."""
    assert until(running(started="0000-01-01T00:00:00Z"), min_runtime=7200) == 7200
