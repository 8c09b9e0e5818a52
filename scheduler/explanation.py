"""Why a pod is where it is, or waits: every node and card with what the decision says of it.

Nothing here decides: the loop's own functions are asked, and their answers put in order for people.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from allocation import holding
from allocation.allocation import Allocation
from allocation.constraints import Constraints
from allocation.errors import AllocationError
from scheduler import messages, node_explanation
from scheduler.cycle import Chosen
from scheduler.explanation_api import Ask, Explanation, Policy, ReasonGroup, Share
from scheduler.foresight import Foresight, foresee
from scheduler.judgement import Wish
from scheduler.objects import Pod
from scheduler.queue import Cure
from scheduler.state import State

MANY: Final = 500
_NODE_POLICIES: Final = {
    "binpack": "binpack: the highest score first, of equal ones the first by name",
    "spread": "spread: the lowest score first, of equal ones the first by name",
}
_CARD_POLICIES: Final = {
    "binpack": "the highest score first",
    "spread": "the lowest score first",
    "numa": "by NUMA node",
    "mutex": "idle cards only",
    "topology-aware": "the best links among them",
}
_TIES: Final = "of equal ones that with the lowest score, then with the most free memory, then the first by index"


def explain(state: State, pod: Pod, *, cards_of: Collection[str] | None = None) -> Explanation:
    """Answer why a pod is where it is, or waits; with the cards of the nodes `cards_of`.

    Where that is None the cards of all nodes are told, or, of more than `MANY` nodes, those of the chosen one: for
    each 1,000 nodes of eight cards nothing is decided for 0.15 s meanwhile.
    """
    settled = _settled(state, pod)
    if settled is not None:
        return settled
    return of_foresight(state, pod, foresee(state, pod), cards_of=cards_of)


def of_foresight(state: State, pod: Pod, seen: Foresight, *, cards_of: Collection[str] | None = None) -> Explanation:
    """Answer what would be done with a pod, and why; see `explain`."""
    decision, wish = seen.decision, seen.wish
    if cards_of is None and len(state.fleet) > MANY:
        cards_of = (decision.node,) if isinstance(decision, Chosen) else ()
    found = Explanation(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        outcome="held",
        answer=decision.note,
        note=decision.note,
        queue=state.queue.standing(pod.uid),
    )
    if wish is None:
        return found
    nodes = tuple(node_explanation.nodes(state, pod, seen, cards_of=cards_of))
    curable = {node.name for node in nodes if node.curable}
    reasons = tuple(
        ReasonGroup(reason, not curable.isdisjoint(names), tuple(names))
        for reason, names in messages.by_reason(seen.judged.rejections, seen.refusals)
    )
    asks = tuple(
        Ask(each.name, each.count, each.memory_mib, each.memory_percent, each.cores)
        for each in wish.request.gpu_containers
    )
    found = msgspec.structs.replace(
        found, asks=asks, policy=_policy(wish), curable=bool(curable), nodes=nodes, reasons=reasons
    )
    if isinstance(decision, Chosen):
        shares = _shares(decision.allocation) if decision.allocation is not None else ()
        answer = f"would go to {decision.node}{_cards(shares)}"
        return msgspec.structs.replace(found, outcome="fits", answer=answer, node=decision.node, shares=shares)
    if decision.cures is Cure.NOTHING:
        return found
    return msgspec.structs.replace(found, outcome="waits", answer=f"waits: {decision.note}")


def _settled(state: State, pod: Pod) -> Explanation | None:
    """Answer about a pod that is not to be decided now, None for one that is."""
    blank = Explanation(namespace=pod.metadata.namespace, pod=pod.metadata.name, outcome="foreign", answer="")
    if pod.finished:
        answer = f"is finished ({pod.status.phase}) and holds nothing"
        return msgspec.structs.replace(blank, outcome="finished", answer=answer, node=pod.spec.node_name)
    if pod.spec.node_name:
        return _bound(state, pod, blank)
    home = state.fleet.home(pod.uid)
    if home:
        held = state.ledger.holding(pod.uid)
        cards = tuple(
            Share("", charge.uuid, _index(state, home, charge.uuid), charge.memory_mib, charge.cores)
            for charge in (held.charges if held is not None else ())
        )
        answer = f"is being bound to {home}{_cards(cards)}"
        return msgspec.structs.replace(blank, outcome="binding", answer=answer, node=home, shares=cards)
    if pod.metadata.deletion_timestamp:
        return msgspec.structs.replace(blank, outcome="finished", answer="is being deleted; it is not placed any more")
    if not state.is_ours(pod):
        ours = ", ".join(sorted(state.names))
        answer = (
            f"is not ours to place: its schedulerName is {pod.spec.scheduler_name or 'default-scheduler'}, not {ours};"
            " a pod that asks for a GPU in a namespace labelled gpu.scheduling/injection=enabled gets it at creation"
        )
        return msgspec.structs.replace(blank, answer=answer)
    if pod.spec.scheduling_gates:
        answer = "waits for its scheduling gates: whoever set spec.schedulingGates has to remove them"
        return msgspec.structs.replace(blank, outcome="gated", answer=answer)
    return None


def _bound(state: State, pod: Pod, blank: Explanation) -> Explanation:
    node = pod.spec.node_name
    found = msgspec.structs.replace(blank, outcome="bound", node=node)
    try:
        held = holding.of_pod(pod.spec, pod.metadata.annotations, node=node, settings=state.settings)
    except AllocationError as error:
        answer = f"was bound to {node} uncounted, so it sees no GPU of ours and the node takes no more pods: {error}"
        return msgspec.structs.replace(found, answer=answer)
    if held is None:
        return msgspec.structs.replace(found, answer=f"is bound to {node}; it asks for no GPU")
    shares = _shares(held[0])
    answer = f"is bound to {node}{_cards(shares)}; its environment says so by annotations that came with its node"
    return msgspec.structs.replace(found, answer=answer, shares=shares)


def _index(state: State, node: str, uuid: str) -> int:
    inventory = state.ledger.inventory(node)
    cards = inventory.cards if inventory is not None else ()
    return next((card.index for card in cards if card.uuid == uuid), -1)


def _shares(allocation: Allocation) -> tuple[Share, ...]:
    return tuple(
        Share(name, share.uuid, share.index, share.memory_mib, share.cores)
        for name, shares in allocation.containers.items()
        for share in shares
    )


def _cards(shares: tuple[Share, ...]) -> str:
    """Answer `, cards 0,1`, each card once."""
    indexes = list(dict.fromkeys(share.index for share in shares))
    if not indexes:
        return ""
    return f", card{'s' if len(indexes) > 1 else ''} {','.join(map(str, indexes))}"


def _policy(wish: Wish) -> Policy | None:
    if wish.fixed is not None:
        return Policy(f"its static allocation names {wish.fixed.node}", "its static allocation names them")
    if not wish.request:
        return Policy("it asks for no GPU: the node with the fewest pods, of equal ones the first by name", "")
    constraints = wish.constraints
    return Policy(_NODE_POLICIES[constraints.node_policy], _card_policy(constraints))


def _card_policy(constraints: Constraints) -> str:
    words = [f"{policy}: {_CARD_POLICIES[policy]}" for policy in constraints.card_policies]
    if constraints.numa_bind:
        words.append("all of one NUMA node")
    return "; ".join((*words, _TIES))
