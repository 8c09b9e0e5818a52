"""One decision: check and reserve in a single synchronous step. Nothing in here awaits, so nothing can come between."""

from collections.abc import Sequence

import msgspec

from allocation import mig_record, record
from allocation.allocation import Allocation, charges
from allocation.constraints import Constraints
from allocation.errors import AllocationError, OverCapacityError
from allocation.mig_plan import plan
from allocation.mig_record import MigAllocation
from allocation.placement import Placement, Rejection, place
from allocation.quota import Room
from allocation.reasons import NODE_UNREGISTERED
from allocation.request import PodRequest
from scheduler import messages, static_allocation, support
from scheduler.fleet import Sorting
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
    try:
        request = state.request(pod)
        constraints = state.constraints(pod)
        fixed = record.of_annotations(pod.metadata.annotations)
    except AllocationError as error:
        return Waiting(f"held: {error}", Cure.NOTHING)
    nodes = state.fleet.sort(pod)
    if fixed is not None:
        return _take_fixed(state, pod, request, nodes, fixed)
    if not request:
        return _take_any(state, pod, request, nodes)
    return _take_cards(state, pod, request, nodes, constraints)


def undo(state: State, pod: Pod) -> None:
    """Give back what `decide` reserved for a pod whose Binding will never be."""
    state.ledger.forget(pod.uid)
    state.wishes.review(pod.uid)
    state.fleet.forget(pod.uid)


def _take_cards(state: State, pod: Pod, request: PodRequest, nodes: Sorting, constraints: Constraints) -> Decision:
    closed = state.closed()
    open_nodes = [name for name in nodes.fitting if name not in closed]
    room = state.quotas.room(pod.metadata.namespace)
    state.wishes.lift(pod.uid)
    outcome = place(state.ledger, request, open_nodes, constraints=constraints, room=room)
    shut = {name: Rejection(node_reason=closed[name]) for name in nodes.fitting if name in closed}
    rejections = {**outcome.rejections, **shut}
    if not isinstance(outcome, Placement):
        asked = _ask_for_instances(state, pod, request, nodes=open_nodes, constraints=constraints, room=room)
        state.wishes.review(pod.uid)
        if asked:
            return Waiting(asked, Cure.EVERYTHING)
        return Waiting(messages.no_fit(rejections, nodes.refusals), Cure.EVERYTHING)
    node = outcome.allocation.node
    state.ledger.assume(pod.uid, node, outcome.charges)
    state.wishes.review(pod.uid)
    state.quotas.enter(pod.uid, pod.metadata.namespace)
    state.fleet.settle(pod, node, assumed=True)
    note = messages.find_fit(outcome.scores, len(rejections) + len(nodes.refusals))
    return Chosen(node, request, outcome.allocation, note, _instances(state, outcome.allocation, request))


def _ask_for_instances(
    state: State, pod: Pod, request: PodRequest, *, nodes: Sequence[str], constraints: Constraints, room: Room
) -> str:
    """Ask an agent for the MIG instances that a pod lacks, unless that is done; answer so in words, else nothing.

    What is asked for is promised to this pod at once. It is bound when the agent reports it.
    """
    if not state.ledger.divided:
        return ""
    wishes = state.wishes.of_pod(pod.uid)
    if not wishes:
        found = plan(
            state.ledger,
            request,
            nodes,
            constraints=constraints,
            promised=state.wishes.promised(),
            barred=state.wishes.barred(),
            room=room,
        )
        if found is None:
            return ""
        state.wishes.add(pod.uid, found)
        wishes = state.wishes.of_pod(pod.uid)
    return messages.asked(wishes)


def _instances(state: State, allocation: Allocation, request: PodRequest) -> tuple[MigAllocation, ...]:
    inventory = state.ledger.inventory(allocation.node)
    return () if inventory is None else mig_record.entries(allocation, request, inventory)


def _take_fixed(state: State, pod: Pod, request: PodRequest, nodes: Sorting, fixed: Allocation) -> Decision:
    """Reserve a static allocation, which names its cards; admission let it in from a trusted identity only."""
    node = fixed.node
    if node not in nodes.fitting:
        reason = nodes.refusals.get(node, "the cluster has no such node")
        return Waiting(f"static allocation on node {node}: {reason}", Cure.EVERYTHING)
    reason = state.closed().get(node, "")
    if reason:
        return Waiting(f"static allocation on node {node}: {reason}", Cure.CAPACITY)
    inventory = state.ledger.inventory(node)
    if inventory is None:
        return Waiting(f"static allocation on node {node}: {NODE_UNREGISTERED}", Cure.CAPACITY)
    reason = static_allocation.mismatch(fixed, inventory)
    if reason:
        return Waiting(f"static allocation: {reason}", Cure.CAPACITY)
    try:
        state.ledger.assume(pod.uid, node, charges(fixed, request))
        state.quotas.enter(pod.uid, pod.metadata.namespace)
    except OverCapacityError as error:
        return Waiting(f"static allocation: {error}", Cure.CAPACITY)
    except AllocationError as error:
        return Waiting(f"static allocation: {error}", Cure.EVERYTHING)
    state.fleet.settle(pod, node, assumed=True)
    note = f"find fit node({node}), static allocation"
    return Chosen(node, request, fixed, note, mig_record.entries(fixed, request, inventory))


def _take_any(state: State, pod: Pod, request: PodRequest, nodes: Sorting) -> Decision:
    """Place a pod that is ours by name only: on the node with the fewest pods."""
    if not nodes.fitting:
        return Waiting(messages.no_fit({}, nodes.refusals), Cure.EVERYTHING)
    node = min(nodes.fitting, key=lambda name: (state.fleet.pods_on(name), name))
    state.fleet.settle(pod, node, assumed=True)
    note = f"find fit node({node}), {len(nodes.refusals)} nodes not fit, {len(nodes.fitting)} nodes fit"
    return Chosen(node, request, None, note)
