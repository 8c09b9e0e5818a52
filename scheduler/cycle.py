"""One decision: check and reserve in a single synchronous step. Nothing in here awaits, so nothing can come between."""

import msgspec

from allocation import mig_record
from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.mig_record import MigAllocation
from allocation.request import PodRequest
from scheduler import judgement, messages, support
from scheduler.fleet import Sorting
from scheduler.judgement import Judgement
from scheduler.objects import Pod
from scheduler.queue import Cure
from scheduler.state import State


class Chosen(msgspec.Struct, frozen=True):
    """The pod has a node, reserved for it; `allocation` is None for a pod that asks for no GPU.

    `note` says how it was found; `instances` are the MIG instances among its cards.
    """

    node: str
    request: PodRequest
    allocation: Allocation | None
    note: str
    instances: tuple[MigAllocation, ...] = ()


class Waiting(msgspec.Struct, frozen=True):
    """No node takes the pod now; `cures` may change that."""

    note: str
    cures: Cure


Decision = Chosen | Waiting


def decide(state: State, pod: Pod) -> Decision:
    """Choose a node and cards for `pod` and reserve them."""
    field = support.unsupported(pod.spec)
    if field:
        return Waiting(f"held: {support.remedy(field)}", Cure.NOTHING)
    return _take(state, pod, state.fleet.sort(pod))


def take(state: State, pod: Pod, node: str) -> Decision:
    """Choose cards for `pod` on the `node` that kube-scheduler chose, and reserve them.

    What a node must be besides its cards is what kube-scheduler has evaluated.
    """
    return _take(state, pod, Sorting([node], {}))


def undo(state: State, pod: Pod) -> None:
    """Give back what was reserved for a pod whose Binding will never be."""
    state.ledger.forget(pod.uid)
    state.fleet.forget(pod.uid)


def _take(state: State, pod: Pod, nodes: Sorting) -> Decision:
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
    except AllocationError as error:
        return Waiting(f"held: {error}", Cure.NOTHING)
    judged = judgement.judge(
        wish,
        nodes.fitting,
        ledger=state.ledger,
        shut=state.shut(wish.request),
        room=state.quotas.room(pod.metadata.namespace),
    )
    if not judged.scores:
        return Waiting(messages.no_fit(judged.rejections, nodes.refusals), Cure.EVERYTHING)
    if judged.allocation is None:
        # Ours by name only: the node with the fewest pods.
        node = min(nodes.fitting, key=lambda name: (state.fleet.pods_on(name), name))
    else:
        node = judged.allocation.node
        state.ledger.assume(pod.uid, node, judged.charges)
        state.quotas.enter(pod.uid, pod.metadata.namespace)
    state.fleet.settle(pod, node, assumed=True)
    instances = _instances(state, judged.allocation, wish.request)
    return Chosen(node, wish.request, judged.allocation, _note(node, judged, nodes), instances)


def _instances(state: State, allocation: Allocation | None, request: PodRequest) -> tuple[MigAllocation, ...]:
    inventory = state.ledger.inventory(allocation.node) if allocation is not None else None
    if allocation is None or inventory is None:
        return ()
    return mig_record.entries(allocation, request, inventory)


def _note(node: str, judged: Judgement, nodes: Sorting) -> str:
    rejected = len(judged.rejections) + len(nodes.refusals)
    if judged.allocation is None:
        return f"find fit node({node}), {rejected} nodes not fit, {len(judged.scores)} nodes fit"
    return messages.find_fit(judged.scores, rejected)
