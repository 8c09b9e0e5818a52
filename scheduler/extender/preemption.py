"""`/preempt`: keeps kube-scheduler from evicting pods for nothing, and adds the pods that have to go for the cards.

kube-scheduler chooses victims for CPU, memory and ports, and knows nothing of cards. Nothing is evicted or reserved
here: each node that it proposes is evaluated as if its victims were gone.
"""

from collections.abc import Callable, Mapping, Sequence

from allocation.errors import AllocationError
from allocation.ledger import ledger_copy
from allocation.placement.rejection import Rejection
from allocation.steps import Steps
from scheduler.cycle import evaluation
from scheduler.extender import filtering, wire
from scheduler.extender.preemption_wire import PreemptionArgs, PreemptionResult, VictimPod, Victims
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.eligibility import EligiblePod
from scheduler.state.cluster_state import ClusterState

MoreVictims = Callable[[GpuRequirements, str, frozenset[str]], Sequence[EligiblePod] | None]
"""Returns the pods that have to go for the cards of a node, in addition to some; None if none suffice."""


def of_chooser(chooser: Chooser, pod: Pod | None) -> MoreVictims:
    """Return a function that chooses as the scheduler's own preemption does; if `pod` may not preempt, no pods.

    kube-scheduler refuses a response with a victim that does not run on the node that it proposed.
    """

    def more(requirements: GpuRequirements, node: str, gone: frozenset[str]) -> Sequence[EligiblePod] | None:
        if pod is None or chooser.eligibility.objection(pod, requirements):
            return None
        found = chooser.more_victims(pod, requirements, node, gone=gone)
        if found is None or any(each.pod.spec.node_name != node for each in found.victims):
            return None
        return found.victims

    return more


def preempt(state: ClusterState, args: PreemptionArgs, *, more: MoreVictims) -> Steps[PreemptionResult]:
    """Return the nodes whose cards take the pod once all victims are gone.

    They are the proposed ones, and, where these do not suffice, those that `more` adds.
    """
    requirements = filtering.read(state, args.pod)
    if isinstance(requirements, AllocationError):
        return PreemptionResult()  # no eviction helps a pod that is held, or waits for another object
    # Victims also give back devices of their node's plugin, so a shortage of these rejects no node here.
    rejected_nodes = state.rejected_nodes.lasting(requirements)
    kept = {}
    for node, victims in args.victims.items():
        gone = frozenset(pod.uid for pod in victims.pods)
        takes = _takes(state, node, args.pod, rejected_nodes, gone=gone)
        added = () if takes else more(requirements, node, gone)
        if added is not None:
            pods = (*victims.pods, *(VictimPod(each.pod.uid) for each in added))
            violations = victims.pdb_violations + sum(each.violates for each in added)
            kept[node] = Victims(pods, violations)
        yield
    return PreemptionResult(kept)


def _takes(
    state: ClusterState, node: str, pod: wire.Pod, rejected_nodes: Mapping[str, Rejection], *, gone: frozenset[str]
) -> bool:
    """Whether the cards of a node take a pod once the pods `gone` are gone."""
    # Which cards of its application are left depends on the other pods.
    requirements = filtering.read(state, pod, without=gone)
    if isinstance(requirements, AllocationError) or node not in state.node_cache:
        return False
    evaluated = evaluation.evaluate_on(
        ledger_copy.of_node(state.ledger, node, without=gone),
        requirements,
        node,
        rejected_nodes=rejected_nodes,
        headroom=state.requirements.headroom(pod, without=gone),
    )
    return node in evaluated.scores
