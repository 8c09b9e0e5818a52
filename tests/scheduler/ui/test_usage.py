"""What is reserved is shown against what is used, by namespace, and what is not measured is in no sum."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from allocation.steps import finish
from cluster.measurement import ContainerMeasurement, DeviceMeasurement, NodeMeasurement
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.ui.sections.usage import OFF, Usage
from scheduler.ui.table import Table
from tests.scheduler.support.builders import Clock, allocated, state

MIB = 1 << 20


def rows(shown: Usage, table: Table) -> dict[str, tuple[str, Any]]:
    """Return the namespace and the content of each row, read again."""
    finish(shown.refresh(table))
    return {key: (row.namespace, msgspec.json.decode(row.content)) for key, row in table.since(0).rows}


def test_reserved_memory_is_shown_against_used_memory() -> None:
    """One pod uses half of its share, one uses nothing; of a card that is not measured nothing is added up."""
    clock, table = Clock(), Table()
    made = state("n1", clock=clock)
    pods = (
        allocated("half", node="n1", memory=400, namespace="team"),
        allocated("nothing", node="n1", memory=100, namespace="team"),
        allocated("unmeasured", node="n1", memory=200, card=1, namespace="other"),
    )
    for pod in pods:
        made.set_pod(pod)
    use = UseOfShares(made.ledger, read_seconds=60.0, idle_seconds=600.0, clock=clock)
    shown = Usage(cast("Any", SimpleNamespace(state=made, use=use, informers=SimpleNamespace(pods=pods))), clock=clock)
    assert rows(shown, table)["team"][1]["unknown"] == 2
    measured = ContainerMeasurement(pods[0].uid, "c", "GPU-n1-0", memory_bytes=200 * MIB, inactive_seconds=0.0)
    use.record("n1", NodeMeasurement("n1", 0.0, (DeviceMeasurement("GPU-n1-0"),), (measured,)))
    assert rows(shown, table)["team"][1]["unknown"] == 2, "it is read again before that is due"
    clock.now += 15
    assert rows(shown, table) == {
        "team": ("team", {"shares": 2, "idle": 0, "unknown": 0, "reservedMiB": 500, "usedMiB": 200}),
        "other": ("other", {"shares": 1, "idle": 0, "unknown": 1, "reservedMiB": 0, "usedMiB": 0}),
    }


def test_nothing_is_known_where_nothing_is_measured() -> None:
    """The page says so instead of showing zeros."""
    term = SimpleNamespace(state=state("n1"), use=None, informers=SimpleNamespace(pods=()))
    assert rows(Usage(cast("Any", term)), Table()) == {OFF: ("", {"off": True})}
