"""One decision: check and reserve in a single synchronous step. Nothing in here awaits, so nothing can come between."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from allocation import mig_record
from allocation.allocation import Allocation, Charge
from allocation.errors import AllocationError
from allocation.mig_plan import Plan, plan
from allocation.mig_record import MigAllocation
from allocation.quota import Room
from allocation.request import PodRequest
from scheduler import judgement, messages, node_reasons, support
from scheduler.fleet import Sorting
from scheduler.judgement import Wish
from scheduler.objects import Pod
from scheduler.queue import Cure
from scheduler.shortcut import Found, Hopeless
from scheduler.state import State

Way = Literal["short", "long", "node"]
"""How a decision was found: by what is remembered of the pod's like, over every node, or for one given node."""


class Chosen(msgspec.Struct, frozen=True):
    """The pod has a node, reserved for it; `allocation` is None for a pod that asks for no GPU.

    `note` says how it was found; `instances` are the MIG instances among its cards, `charges` what these cost.
    """

    node: str
    request: PodRequest
    allocation: Allocation | None
    note: str
    instances: tuple[MigAllocation, ...] = ()
    charges: tuple[Charge, ...] = ()
    way: Way = "long"


class Waiting(msgspec.Struct, frozen=True):
    """No node takes the pod now; `cures` may change that, and so will the MIG instances that are `asked` for.

    `reasons` are the codes of why: of cards, of nodes, or HELD where the pod itself is why.
    """

    note: str
    cures: Cure
    reasons: frozenset[str]
    way: Way = "long"
    asked: Plan | None = None


Decision = Chosen | Waiting

HELD = "PodHeld"
"""The pod uses a field that is not evaluated, or one that cannot be read."""
INSTANCE_ASKED = "MigInstanceAsked"
"""An agent makes the MIG instance that the pod waits for."""
NO_NODE = "NoNode"
"""The cluster has no node at all."""


def decide(state: State, pod: Pod) -> Decision:
    """Choose a node and cards for `pod` and reserve them."""
    state.wishes.lift(pod.uid)
    decision = foresee(state, pod)
    _carry_out(state, pod, decision)
    state.wishes.review(pod.uid)
    return decision


def foresee(state: State, pod: Pod) -> Decision:
    """Answer what `decide` would answer now; nothing is reserved, and no agent is asked for anything.

    Whoever asks for a pod that waits for MIG instances has to lift its wishes first.
    """
    field = support.unsupported(pod.spec) if state.has_queue else ""
    if field:
        return _held(support.remedy(field))
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
    except AllocationError as error:
        return _held(str(error))
    return _find(state, pod, wish)


def take(state: State, pod: Pod, node: str) -> Decision:
    """Choose cards for `pod` on the `node` that kube-scheduler chose, and reserve them.

    What a node must be besides its cards is what kube-scheduler has evaluated.
    """
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
    except AllocationError as error:
        return _held(str(error))
    decision = _choose(state, wish, Sorting([node], {}), state.quotas.room(pod.metadata.namespace))
    _carry_out(state, pod, decision)
    return decision


def undo(state: State, pod: Pod) -> None:
    """Give back what was reserved for a pod whose Binding will never be."""
    state.ledger.forget(pod.uid)
    state.wishes.review(pod.uid)
    state.fleet.forget(pod.uid)


def _find(state: State, pod: Pod, wish: Wish) -> Decision:
    room = state.quotas.room(pod.metadata.namespace)
    found = state.shortcut.find(pod, wish, room)
    if isinstance(found, Found):
        note = messages.find_fit(
            found.scores,
            fitting=found.fitting,
            rejected=len(state.fleet) - found.fitting,
            is_exact=found.is_exact,
        )
        return _chosen(state, wish, found.chosen.allocation, found.chosen.charges, note=note, way="short")
    if isinstance(found, Hopeless) and found.note and not state.ledger.divided:
        return Waiting(found.note, Cure.EVERYTHING, found.reasons, "short")
    nodes = state.fleet.sort(pod)
    decision = _choose(state, wish, nodes, room)
    if isinstance(decision, Chosen):
        return decision
    waiting = _wait_for_instances(state, pod, wish, nodes.fitting, room=room)
    if waiting is not None:
        return waiting
    if isinstance(found, Hopeless):
        state.shortcut.remember(found, decision.note, decision.reasons)
    return decision


def _choose(state: State, wish: Wish, nodes: Sorting, room: Room) -> Decision:
    judged = judgement.judge(
        wish,
        nodes.fitting,
        ledger=state.ledger,
        shut=state.shut(wish.request),
        room=room,
    )
    if not judged.scores:
        reasons = node_reasons.codes(judged.rejections.values(), nodes.refusals) or frozenset({NO_NODE})
        return Waiting(messages.no_fit(judged.rejections, nodes.refusals), Cure.EVERYTHING, reasons)
    rejected = len(judged.rejections) + len(nodes.refusals)
    if judged.allocation is not None:
        note = messages.find_fit(judged.scores, fitting=len(judged.scores), rejected=rejected)
        return _chosen(state, wish, judged.allocation, judged.charges, note=note)
    # Ours by name only: the node with the fewest pods.
    node = min(nodes.fitting, key=lambda name: (state.fleet.pods_on(name), name))
    note = f"find fit node({node}), {rejected} nodes not fit, {len(judged.scores)} nodes fit"
    return Chosen(node, wish.request, None, note)


def _chosen(
    state: State,
    wish: Wish,
    allocation: Allocation,
    charges: tuple[Charge, ...],
    *,
    note: str,
    way: Way = "long",
) -> Chosen:
    instances = _instances(state, allocation, wish.request)
    return Chosen(allocation.node, wish.request, allocation, note, instances, charges, way)


def _held(why: str) -> Waiting:
    return Waiting(f"held: {why}", Cure.NOTHING, frozenset({HELD}), "short")


def _carry_out(state: State, pod: Pod, decision: Decision) -> None:
    """Reserve what was chosen, or note what an agent shall be asked for."""
    if isinstance(decision, Waiting):
        if decision.asked is not None:
            state.wishes.add(pod.uid, decision.asked)
        return
    if decision.allocation is not None:
        state.ledger.assume(pod.uid, decision.node, decision.charges)
        state.quotas.enter(pod.uid, pod.metadata.namespace)
    state.fleet.settle(pod, decision.node, assumed=True)


def _wait_for_instances(state: State, pod: Pod, wish: Wish, nodes: Sequence[str], *, room: Room) -> Waiting | None:
    """Answer which MIG instances the pod waits for, or which an agent is to be asked for, if that is its case.

    What is asked for is promised to this pod at once. It is bound when the agent reports it. In extender mode, where
    pods wait with kube-scheduler, nobody is asked.
    """
    if not state.has_queue or not state.ledger.divided or not wish.request or wish.fixed is not None:
        return None
    wishes = state.wishes.of_pod(pod.uid)
    if wishes:
        return Waiting(messages.asked(wishes), Cure.EVERYTHING, frozenset({INSTANCE_ASKED}))
    shut = state.shut(wish.request)
    found = plan(
        state.ledger,
        wish.request,
        [name for name in nodes if name not in shut],
        constraints=wish.constraints,
        promised=state.wishes.promised(),
        barred=state.wishes.barred(),
        room=room,
    )
    if found is None:
        return None
    note = messages.asked([(found.node, new) for new in found.instances])
    return Waiting(note, Cure.EVERYTHING, frozenset({INSTANCE_ASKED}), asked=found)


def _instances(state: State, allocation: Allocation, request: PodRequest) -> tuple[MigAllocation, ...]:
    inventory = state.ledger.inventory(allocation.node)
    if inventory is None or allocation.node not in state.ledger.divided:
        return ()
    return mig_record.entries(allocation, request, inventory)
