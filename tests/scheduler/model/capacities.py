"""Questions about capacity: they change nothing, whatever is on, and no pod waits that has room for one like it."""

from __future__ import annotations

from allocation.steps import finish
from scheduler.api import capacity
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.api.test_capacity import without_changes
from tests.scheduler.model.machine import Machine
from tests.scheduler.support.scheduling import cycle_of

_MOST = 50


class Capacities(Machine):
    """Asked for copies of the first pod that waits, and of the last that was placed."""

    def settled(self) -> None:
        """Count, and compare the state before and after."""
        super().settled()
        state = self.cluster.state
        waiting = next((each.pod for each in state.queue if each.place != "binding"), None)
        running = next(reversed(state.running.values()), None)
        for shape in (waiting, running):
            if shape is None:
                continue
            before = without_changes(state)
            submitted = SubmittedPod(PlannedPod.of(shape, ()), ())
            found = finish(capacity.count(cycle_of(state), "shape", submitted, most=_MOST, is_over=lambda: False))
            assert without_changes(state) == before
            assert found.count == sum(each.count for each in found.nodes)
            if shape is waiting and not state.gangs.waits_for_others(shape):
                assert not found.count, (shape, found)
