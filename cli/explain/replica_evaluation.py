"""How many pods of a workload fit, if each keeps its reservation while the next one is evaluated.

The reservations are made in the command's own copy of the scheduler's state; nothing is written to the cluster.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from allocation.reasons import NodeReason
from allocation.steps import finish
from cli.explain.replicas import Replicas
from cli.workloads.workload import Workload
from cluster.manifest import NotAdmittedError
from scheduler.api import simulation
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.state.cluster_state import ClusterState

_NOT_ELIGIBLE: Final = frozenset(
    {
        NodeReason.NodeNameMismatch,
        NodeReason.NodeSelectorMismatch,
        NodeReason.NodeTainted,
        NodeReason.NodeUnschedulable,
    }
)
"""For these reasons a DaemonSet has no pod on a node. For any other reason it has one, which waits."""
_ORDERED: Final = (
    "the StatefulSet creates no further pod until that one is ready, unless podManagementPolicy is Parallel"
)

Submit = Callable[[int], SubmittedPod]
"""Returns the pod with a given number as admission would leave it; raises NotAdmittedError."""
Simulate = Callable[[SubmittedPod], Simulation]


def eligible(state: ClusterState, submitted: SubmittedPod) -> list[str]:
    """Return the nodes on which a DaemonSet has a pod; `submitted` is one that is not tied to a node yet."""
    filtered = finish(state.node_cache.filter(submitted.pod))
    waiting = (name for name, each in filtered.rejections.items() if each.code not in _NOT_ELIGIBLE)
    return sorted((*filtered.fitting, *waiting))


def every(cycle: SchedulingCycle, workload: Workload, *, submit: Submit, simulate: Simulate) -> Replicas:
    """Evaluate all pods in order, and keep those that fit reserved.

    The first pod that does not fit ends the evaluation, because the rest are alike, or come only after it. The pods of
    a DaemonSet differ, and those with claims of their own do.
    """
    nodes: Counter[str] = Counter()
    unfit: Simulation | None = None
    for number in range(workload.total):
        try:
            submitted = submit(number)
        except NotAdmittedError as error:
            unfit = unfit or simulation.not_admitted(str(error))
            break
        decision = finish(cycle.schedule(submitted.pod))
        if isinstance(decision, Scheduled):
            nodes[decision.node] += 1
            cycle.state.bindings.set_pod(submitted.pod)  # the cards of its application are in use for the next pods
            continue
        unfit = unfit or simulate(submitted)
        differ = workload.make_on is not None or any(workload.make_claims(number))
        if workload.is_ordered or not differ:
            break
    note = workload.note or (_ORDERED if unfit is not None and workload.is_ordered else "")
    return Replicas(workload.total, workload.total, nodes.total(), dict(sorted(nodes.items())), note, unfit)
