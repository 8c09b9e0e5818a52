"""What is said of pods that wait: nothing else than what the scheduler decides (see also ModelDriver.schedule)."""

from __future__ import annotations

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from tests.scheduler.model.machine import Machine
from tests.scheduler.support.scheduling import cycle_of


class Explanations(Machine):
    """Asked of every pod that waits, once all that are due were decided."""

    def settled(self) -> None:
        """Check that no pod waits that would fit: the scheduler was notified of what it waited for."""
        super().settled()
        gangs = self.cluster.state.gangs
        for entry in self.cluster.state.queue:
            if gangs.waits_for_others(entry.pod):
                continue  # a place for itself is not enough (`Gangs.settled`)
            result = finish(cycle_of(self.cluster.state).dry_run(entry.pod)).result
            assert not isinstance(result, Scheduled), (entry.pod, entry.place, result)
