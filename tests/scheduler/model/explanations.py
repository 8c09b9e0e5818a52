"""What is said of pods that wait: nothing else than what the scheduler decides (see also ModelDriver.schedule)."""

from __future__ import annotations

from hypothesis.stateful import invariant

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from tests.scheduler.model.machine import Machine
from tests.scheduler.support.scheduling import cycle_of


class Explanations(Machine):
    """Asked after each step of every pod that waits."""

    def settled(self) -> None:
        """Check that no pod waits that would fit: the scheduler was notified of what it waited for."""
        super().settled()
        for entry in self.cluster.state.queue:
            result = finish(cycle_of(self.cluster.state).dry_run(entry.pod)).result
            assert not isinstance(result, Scheduled), (entry.pod, entry.place, result)

    @invariant()
    def a_new_term_decides_the_same(self) -> None:
        """It has remembered nothing of earlier decisions."""
        running, fresh = self.cluster.state, self.cluster.api.restarted()
        if running.instance_requests.cooling_down():
            return  # a request was given up, of which a new term knows nothing
        for entry in running.queue:
            own, other = (finish(cycle_of(state).dry_run(entry.pod)).result for state in (running, fresh))
            assert (type(own), own.note) == (type(other), other.note)
