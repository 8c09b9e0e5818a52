"""One decision: check and reserve in a single synchronous step. Nothing in here awaits, so nothing can come between."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from allocation import mig_record
from allocation.allocation import Allocation, Charge
from allocation.errors import AllocationError
from allocation.mig_plan import plan
from allocation.mig_record import MigAllocation
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

    `note` says how it was found; `instances` are the MIG instances among its cards.
    """

    node: str
    request: PodRequest
    allocation: Allocation | None
    note: str
    instances: tuple[MigAllocation, ...] = ()
    way: Way = "long"


class Waiting(msgspec.Struct, frozen=True):
    """No node takes the pod now; `cures` may change that.

    `reasons` are the codes of why: of cards, of nodes, or HELD where the pod itself is why.
    """

    note: str
    cures: Cure
    reasons: frozenset[str]
    way: Way = "long"


Decision = Chosen | Waiting

HELD = "PodHeld"
"""The pod uses a field that is not evaluated, or one that cannot be read."""
INSTANCE_ASKED = "MigInstanceAsked"
"""An agent makes the MIG instance that the pod waits for."""
NO_NODE = "NoNode"
"""The cluster has no node at all."""


def decide(state: State, pod: Pod) -> Decision:
    """Choose a node and cards for `pod` and reserve them."""
    field = support.unsupported(pod.spec)
    if field:
        return _held(support.remedy(field))
    state.wishes.lift(pod.uid)
    decision = _decide(state, pod)
    state.wishes.review(pod.uid)
    return decision


def take(state: State, pod: Pod, node: str) -> Decision:
    """Choose cards for `pod` on the `node` that kube-scheduler chose, and reserve them.

    What a node must be besides its cards is what kube-scheduler has evaluated.
    """
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
    except AllocationError as error:
        return _held(str(error))
    return _take(state, pod, wish, Sorting([node], {}))


def undo(state: State, pod: Pod) -> None:
    """Give back what was reserved for a pod whose Binding will never be."""
    state.ledger.forget(pod.uid)
    state.wishes.review(pod.uid)
    state.fleet.forget(pod.uid)


def _decide(state: State, pod: Pod) -> Decision:
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations, state.settings)
    except AllocationError as error:
        return _held(str(error))
    found = state.shortcut.find(pod, wish, state.quotas.room(pod.metadata.namespace))
    if isinstance(found, Found):
        note = messages.find_fit(
            found.scores,
            fitting=found.fitting,
            rejected=len(state.fleet) - found.fitting,
            is_exact=found.is_exact,
        )
        cards = found.chosen
        return _reserve(state, pod, wish, allocation=cards.allocation, charges=cards.charges, note=note, way="short")
    if isinstance(found, Hopeless) and found.note and not state.ledger.divided:
        return Waiting(found.note, Cure.EVERYTHING, found.reasons, "short")
    nodes = state.fleet.sort(pod)
    decision = _take(state, pod, wish, nodes)
    if isinstance(decision, Chosen):
        return decision
    asked = _ask_for_instances(state, pod, wish, nodes.fitting)
    if asked:
        return Waiting(asked, Cure.EVERYTHING, frozenset({INSTANCE_ASKED}))
    if isinstance(found, Hopeless):
        state.shortcut.remember(found, decision.note, decision.reasons)
    return decision


def _take(state: State, pod: Pod, wish: Wish, nodes: Sorting) -> Decision:
    judged = judgement.judge(
        wish,
        nodes.fitting,
        ledger=state.ledger,
        shut=state.shut(wish.request),
        room=state.quotas.room(pod.metadata.namespace),
    )
    if not judged.scores:
        reasons = node_reasons.codes(judged.rejections.values(), nodes.refusals) or frozenset({NO_NODE})
        return Waiting(messages.no_fit(judged.rejections, nodes.refusals), Cure.EVERYTHING, reasons)
    rejected = len(judged.rejections) + len(nodes.refusals)
    if judged.allocation is not None:
        note = messages.find_fit(judged.scores, fitting=len(judged.scores), rejected=rejected)
        return _reserve(state, pod, wish, allocation=judged.allocation, charges=judged.charges, note=note)
    # Ours by name only: the node with the fewest pods.
    node = min(nodes.fitting, key=lambda name: (state.fleet.pods_on(name), name))
    state.fleet.settle(pod, node, assumed=True)
    note = f"find fit node({node}), {rejected} nodes not fit, {len(judged.scores)} nodes fit"
    return Chosen(node, wish.request, None, note)


def _reserve(
    state: State,
    pod: Pod,
    wish: Wish,
    *,
    allocation: Allocation,
    charges: Sequence[Charge],
    note: str,
    way: Way = "long",
) -> Chosen:
    node = allocation.node
    state.ledger.assume(pod.uid, node, charges)
    state.quotas.enter(pod.uid, pod.metadata.namespace)
    state.fleet.settle(pod, node, assumed=True)
    return Chosen(node, wish.request, allocation, note, _instances(state, allocation, wish.request), way)


def _held(why: str) -> Waiting:
    return Waiting(f"held: {why}", Cure.NOTHING, frozenset({HELD}), "short")


def _ask_for_instances(state: State, pod: Pod, wish: Wish, nodes: Sequence[str]) -> str:
    """Ask an agent for the MIG instances that a pod lacks, unless that is done; answer so in words, else nothing.

    What is asked for is promised to this pod at once. It is bound when the agent reports it.
    """
    if not state.ledger.divided or not wish.request or wish.fixed is not None:
        return ""
    wishes = state.wishes.of_pod(pod.uid)
    if not wishes:
        shut = state.shut(wish.request)
        found = plan(
            state.ledger,
            wish.request,
            [name for name in nodes if name not in shut],
            constraints=wish.constraints,
            promised=state.wishes.promised(),
            barred=state.wishes.barred(),
            room=state.quotas.room(pod.metadata.namespace),
        )
        if found is None:
            return ""
        state.wishes.add(pod.uid, found)
        wishes = state.wishes.of_pod(pod.uid)
    return messages.asked(wishes)


def _instances(state: State, allocation: Allocation, request: PodRequest) -> tuple[MigAllocation, ...]:
    inventory = state.ledger.inventory(allocation.node)
    if inventory is None or allocation.node not in state.ledger.divided:
        return ()
    return mig_record.entries(allocation, request, inventory)
