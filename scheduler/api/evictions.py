"""What evictions of other pods would do for one that waits, by the functions that decide it."""

import msgspec

from allocation.steps import Steps
from scheduler.api.consolidation_types import ConsolidationExplanation, PlannedMove
from scheduler.api.preemption_explanation import preemption
from scheduler.api.preemption_types import PreemptionExplanation
from scheduler.consolidation.planner import NoPlan, Plan, Planner
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.gang_choice import GangChooser
from scheduler.state.cluster_state import ClusterState

_NODES = 8
"""The number of nodes for which moves are planned for an explanation."""


class Evictions(msgspec.Struct, frozen=True):
    """What chooses the pods to preempt; what plans moves, and chooses for gangs, is None where there is no queue."""

    chooser: Chooser
    planner: Planner | None = None
    gangs: GangChooser | None = None

    @property
    def state(self) -> ClusterState:
        """What they decide by."""
        return self.chooser.state

    def for_pod(self, pod: Pod) -> Steps[tuple[PreemptionExplanation, ConsolidationExplanation | None]]:
        """Return the pods that a pending pod would preempt, or else those that could be moved for it."""
        preempted = yield from preemption(self.chooser, pod, gangs=self.gangs)
        if self.planner is None or preempted.node:
            return preempted, None
        found = yield from self.planner.plan(pod, most_nodes=_NODES)
        return preempted, explained(found)


def explained(found: Plan | NoPlan) -> ConsolidationExplanation:
    """Return a plan as the API shows it."""
    if isinstance(found, NoPlan):
        return ConsolidationExplanation(why=found.why)
    moves = tuple(
        PlannedMove(each.moved.pod.metadata.namespace, each.moved.pod.metadata.name, each.node, each.moved.memory_mib)
        for each in found.moves
    )
    return ConsolidationExplanation(found.node, len(moves), moves)
