"""Explanations, computed without interruption."""

from collections.abc import Collection

from allocation.steps import finish
from scheduler.api import explanation
from scheduler.api.explanation_types import Explanation
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.scheduling import cycle_of


def explained(state: ClusterState, pod: Pod, *, cards_of: Collection[str] | None = None) -> Explanation:
    """Return the explanation of a pod."""
    return finish(explanation.explain(cycle_of(state), pod, evictions=evictions_of(state), cards_of=cards_of))
