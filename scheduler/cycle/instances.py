"""MIG instances that a pod waits for: they are requested from the agent of a node, and the pod is bound to them.

Requested instances are reserved for the pod as soon as the agent reports them.
"""

from collections.abc import Sequence
from typing import Final

from allocation.placement.mig_plan import plan
from allocation.quota import Headroom
from allocation.reasons import PodReason
from allocation.steps import Steps
from scheduler.cycle import messages
from scheduler.cycle.evaluation import Evaluation
from scheduler.cycle.lifts import Lift
from scheduler.cycle.result import Unschedulable
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_ASKED: Final = frozenset({PodReason.MigInstanceAsked.value})


def wait(state: ClusterState, pod: Pod, evaluated: Evaluation, headroom: Headroom) -> Steps[Unschedulable | None]:
    """Return the result that a pod waits for MIG instances, requested before or now; None if none would help.

    In extender mode, where kube-scheduler has the queue, no instances are requested.
    """
    requirements = evaluated.requirements
    if not state.has_queue or not state.ledger.mig_nodes or not requirements.request or requirements.fixed:
        return None
    if requirements.bound is not None:
        return None  # an application service binds what exists
    requests = state.instance_requests.of_pod(pod.uid)
    if requests:
        return Unschedulable(messages.asked(requests), _ASKED)
    rejected = state.rejected_nodes.of(requirements, without=evaluated.lift)
    nodes = [name for name in evaluated.nodes.fitting if name not in rejected]
    return (yield from request(state, requirements, nodes, headroom, evaluated.lift))


def request(
    state: ClusterState, requirements: GpuRequirements, nodes: Sequence[str], headroom: Headroom, lift: Lift
) -> Steps[Unschedulable | None]:
    """Return the result that a pod waits for MIG instances to be created on one of `nodes`, or None."""
    planned = yield from plan(
        state.ledger,
        requirements.request,
        nodes,
        constraints=requirements.constraints,
        requested=state.instance_requests.requested_slices(),
        cooling_down=state.instance_requests.cooling_down(),
        headroom=headroom,
        without=lift,
    )
    if planned is None:
        return None
    note = messages.asked([(planned.node, new) for new in planned.instances])
    return Unschedulable(note, _ASKED, requested_instances=planned)
