"""GPU-hours are what this replica has counted since it leads, and nothing is said of the time before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from allocation.names import CHARGED_TO
from allocation.steps import finish
from scheduler.state import allocated_time
from scheduler.ui.sections.hours import SINCE, Hours
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER
from tests.scheduler.support.builders import Clock, allocated, state
from tests.scheduler.support.driving import gpu_queue

if TYPE_CHECKING:
    from scheduler.state.cluster_state import ClusterState

NOON = 1_800_000_000


def section(made: ClusterState) -> Hours:
    """Return the section of a term with this state, at noon."""
    return Hours(cast("Any", SimpleNamespace(state=made)), unix=lambda: NOON)


def rows(shown: Hours, table: Table) -> dict[str, tuple[str, Any]]:
    """Return the namespace and the content of each row, read again."""
    finish(shown.refresh(table))
    return {key: (row.namespace, msgspec.json.decode(row.content)) for key, row in table.since(0).rows}


def test_hours_are_those_that_the_report_adds_up() -> None:
    """By namespace and queue, each for the users of its namespace; a pod that ends leaves its hours."""
    clock = Clock()
    made = state("n1", clock=clock)
    made.limits.set_queue(gpu_queue("research"))
    charged = allocated("a", node="n1", memory=500, namespace="team")
    charged.metadata.annotations[CHARGED_TO] = "research"
    ends = allocated("b", node="n1", memory=250, card=1, namespace="other")
    made.set_pod(charged)
    made.set_pod(ends)
    clock.now += 7200
    made.drop_pod(ends)
    found = rows(section(made), Table())
    assert found.pop(SINCE) == ("", {"since": NOON - 7200})
    assert found == {
        "team/research": ("team", {"namespace": "team", "queue": "research", "cards": 0.5, "hours": 1.0}),
        "other/": ("other", {"namespace": "other", "queue": "", "cards": 0, "hours": 0.5}),
    }


def test_few_rows_change_each_second() -> None:
    """A hundredth of an hour is the smallest step."""
    clock, table = Clock(), Table()
    made = state("n1", clock=clock)
    made.set_pod(allocated("a", node="n1", memory=500, namespace="team"))
    shown = section(made)
    rows(shown, table)
    version = table.version
    clock.now += 30
    rows(shown, table)
    assert table.version == version
    clock.now += 60
    rows(shown, table)
    assert table.version == version + 1


def test_what_is_not_counted_separately_belongs_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no tenant sees the sum of others."""
    monkeypatch.setattr(allocated_time, "MOST", 0)
    made = state("n1")
    made.set_pod(allocated("a", node="n1", memory=500, namespace="team"))
    assert rows(section(made), Table())["/"][0] == CLUSTER
