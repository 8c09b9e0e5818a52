"""Chooses the cards to hold for a pod that has waited too long, on the node where the fewest pods have to end first.

Pods of its own namespace and queue do not count as ones that will end: with one that never does, its owner could hold
cards for ever.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from allocation.allocation import Charge
from allocation.ledger import ledger_copy
from allocation.ledger.ledger import Ledger, Reservation
from allocation.ledger.ledger_view import lack
from allocation.placement.rejection import Rejection
from allocation.quota import Headroom
from allocation.reasons import NodeReason
from allocation.steps import Steps, finish
from scheduler.cycle import evaluation
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

_NODES: Final = 16
"""The number of nodes that are tried: those where the least memory has to become free."""
_STEP: Final = 256


class HeldCards(msgspec.Struct, frozen=True):
    """Cards of a node for a pod, and the UIDs of the pods that have to end before it gets them."""

    node: str
    charges: tuple[Charge, ...]
    awaited: frozenset[str]


def choose(state: ClusterState, pod: Pod, requirements: GpuRequirements, headroom: Headroom) -> Steps[HeldCards | None]:
    """Return the cards for a pod that fits nowhere now; None if no node would take it whichever pods end."""
    evaluated = yield from evaluation.evaluate(state, pod, requirements, headroom)
    if evaluated.scores:
        return None
    full = [name for name, each in evaluated.rejections.items() if _is_of_use(each)]
    lacking = []
    for position, name in enumerate(full):
        if position % _STEP == _STEP - 1:
            yield
        lacking.append((lack(state.ledger, name, requirements.request), name))
    best: tuple[tuple[int, int, str], HeldCards] | None = None
    for _, node in sorted(lacking)[:_NODES]:
        yield
        found = _fewest(state, pod, requirements, headroom, node)
        if found is not None:
            cost = (len(found.awaited), _memory(state.ledger, found.awaited), node)
            if best is None or cost < best[0]:
                best = cost, found
    return best[1] if best is not None else None


def _is_of_use(rejection: Rejection) -> bool:
    """Whether pods that end could change why the cards of a node, or its pods with cards, do not take the pod."""
    of_pods = rejection.node is not None and rejection.node.code is NodeReason.NodeGpuPodsExhausted
    return rejection.resolvable and (rejection.node is None or of_pods)


def is_possible(
    state: ClusterState, pod: Pod, requirements: GpuRequirements, headroom: Headroom, node: str, *, hold: str
) -> bool:
    """Whether a node takes the pod for which it has a `hold` once those have ended there that count as ones that will.

    `hold` is the UID of the reservation.
    """
    rejection = finish(state.node_filter.filter(pod, (node,), without=(hold,))).rejections.get(node)
    if node not in state.node_cache or (rejection is not None and not rejection.resolvable):
        return False
    ending = {each.uid for each in _ending(state, pod, node)}
    evaluated = evaluation.evaluate_on(
        ledger_copy.of_node(state.ledger, node, without={hold, *ending}),
        requirements,
        node,
        rejected_nodes=state.rejected_nodes.of(requirements, without=(hold,)),
        headroom=headroom,
    )
    return bool(evaluated.scores)


def _fewest(
    state: ClusterState, pod: Pod, requirements: GpuRequirements, headroom: Headroom, node: str
) -> HeldCards | None:
    """Return the cards of a node for which the fewest pods have to end; pods are kept as long as the new one fits.

    Whether large or small pods should be kept first depends on the request, so both are tried.
    """
    pods = sorted(_ending(state, pod, node), key=lambda each: (_size(each.charges), each.uid))
    found = [_kept(state, requirements, headroom, node, order) for order in (pods, pods[::-1])]
    return min((each for each in found if each is not None), key=lambda each: len(each.awaited), default=None)


def _kept(
    state: ClusterState, requirements: GpuRequirements, headroom: Headroom, node: str, pods: Sequence[Reservation]
) -> HeldCards | None:
    """Return the cards with the pods that have to end, after as many as possible of `pods` were kept, in order."""
    awaited = {each.uid for each in pods}
    charges: tuple[Charge, ...] | None = None
    copy, rejected_nodes = ledger_copy.of_node(state.ledger, node), state.rejected_nodes.of(requirements)
    for keep in (None, *(each.uid for each in pods)):
        some = awaited - {keep}
        copy.leave_out(some)
        tried = evaluation.evaluate_on(copy, requirements, node, rejected_nodes=rejected_nodes, headroom=headroom)
        if tried.scores:
            awaited, charges = some, tried.charges
        elif charges is None:
            return None
    return HeldCards(node, charges or (), frozenset(awaited))


def _ending(state: ClusterState, pod: Pod, node: str) -> list[Reservation]:
    """Return what the pods of a node hold that count as ones that will end."""
    return [each for each in state.ledger.reservations(node) if each.is_pod and not _is_own(state, pod, each.uid)]


def _is_own(state: ClusterState, pod: Pod, uid: str) -> bool:
    """Whether a running pod is of the namespace and the queue of the one that waits."""
    running, fair_share = state.running.get(uid), state.fair_share
    if running is None or running.metadata.namespace != pod.metadata.namespace:
        return False
    return fair_share.use.owner(uid) == fair_share.key(pod)


def _memory(ledger: Ledger, uids: Iterable[str]) -> int:
    return sum(_size(each.charges) for uid in uids if (each := ledger.reservation(uid)) is not None)


def _size(charges: Iterable[Charge]) -> int:
    return sum(charge.memory_mib for charge in charges)
