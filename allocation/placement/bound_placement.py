"""Places a pod on the cards that are bound to its application (docs/gpubindings.md).

The few nodes that have such cards are tried one by one, so bindings cost the decisions about other pods nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from allocation.allocation import Allocation, charges
from allocation.bindings.binding import AppIdentity
from allocation.bindings.bound_cards import BoundCard, BoundCards
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import rejection, score
from allocation.placement.placement import NoPlacement, Placement, place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import Rejection
from allocation.reasons import NodeReason, NodeRejection
from allocation.request import PodRequest

_SIGN: Final = {"binpack": 1.0, "spread": -1.0}


def nodes_of(ledger: Ledger, bound: BoundCards) -> tuple[str, ...]:
    """Return the nodes that have cards which are bound to the pod's application, by name."""
    return tuple(sorted(by_node(ledger, bound)))


def by_node(ledger: Ledger, bound: BoundCards) -> dict[str, list[BoundCard]]:
    """Return the cards that are bound to the pod's application by the node that has them."""
    found: defaultdict[str, list[BoundCard]] = defaultdict(list)
    for card in bound.cards:
        position = ledger.position(card.uuid)
        if position is not None:
            found[ledger.node(position[0])].append(card)
    return found


def not_bound(identity: AppIdentity) -> Rejection:
    """Return the rejection by a node none of whose cards is bound to the pod's application."""
    return rejection.of_node(NodeRejection(NodeReason.NodeNotBound, f"no card bound to {identity}", resolvable=False))


def place(view: LedgerView, query: PlacementQuery, bound: BoundCards, nodes: Sequence[str]) -> Placement | NoPlacement:
    """Choose one of `nodes` and the cards there that are `bound` to the pod's application.

    With policy all it is the first by name whose bound cards all are left; otherwise the node policy decides.
    """
    cards = by_node(view.ledger, bound)
    elsewhere = not_bound(bound.identity)
    rejections = {name: elsewhere for name in nodes if name not in cards}
    fitting: dict[str, Allocation] = {}
    scores: dict[str, float] = {}
    for name in sorted(cards.keys() & nodes):
        here = query_on(query, bound, cards[name])
        if isinstance(here, Rejection):
            rejections[name] = here
            continue
        outcome = place_on(view.of(name), here, name)
        if isinstance(outcome, Rejection):
            rejections |= rejection.naming_quota({name: outcome}, _granted(here), query.headroom)
            continue
        fitting[name] = outcome
        scores[name] = _score(view.of(name), name, here.request)
    if not fitting:
        return NoPlacement(rejections)
    values: dict[str, float] = {}
    if bound.policy == "all":
        values = {name: -float(place) for place, name in enumerate(fitting)}
    else:
        sign = _SIGN[query.constraints.node_policy]
        scores = dict(sorted(scores.items(), key=lambda each: (-sign * each[1], each[0])))
    chosen = fitting[next(iter(scores))]
    return Placement(chosen, charges(chosen, query.request), scores, values, rejections)


def query_on(query: PlacementQuery, bound: BoundCards, cards: Sequence[BoundCard]) -> PlacementQuery | Rejection:
    """Return what is to be placed on a node with these bound `cards`, or why too few of them are left."""
    avoided = query.constraints.avoid_uuids
    cards = [card for card in cards if card.uuid not in avoided]
    left = [card for card in cards if not card.consumers]
    request = query.request
    wanted = max(container.count for container in request.gpu_containers)
    if bound.policy == "all":
        wanted = len(cards) or 1  # the pod avoids all of them
        containers = (
            msgspec.structs.replace(each, count=wanted) if each.count else each for each in request.containers
        )
        request = PodRequest(tuple(containers), request.isolation)
    if len(left) < wanted:
        return _insufficient(bound, cards, wanted=wanted)
    constraints = msgspec.structs.replace(query.constraints, use_uuids=frozenset(card.uuid for card in left))
    return PlacementQuery(request, constraints, query.headroom, msgspec.structs.replace(bound, cards=tuple(left)))


def _granted(query: PlacementQuery) -> PodRequest:
    """Return what the pod would get of the first of the cards that are left, in place of what it requests."""
    bound = query.bound
    assert bound is not None  # noqa: S101 -- query_on sets it
    return PodRequest(tuple(bound.cards[0].request(each) if each.count else each for each in query.request.containers))


def _insufficient(bound: BoundCards, cards: Sequence[BoundCard], *, wanted: int) -> Rejection:
    consumed = [f"{card.uuid} (pod {', '.join(card.consumers)})" for card in cards if card.consumers]
    used = f"; in use: {', '.join(consumed)}" if consumed else ""
    message = (
        f"{len(cards) - len(consumed)} of {len(cards)} cards bound to {bound.identity} left, {wanted} needed{used}"
    )
    return rejection.of_node(NodeRejection(NodeReason.InsufficientGPU, message, resolvable=bool(consumed)))


def _score(ledger: Ledger, node: str, request: PodRequest) -> float:
    row = ledger.row(node)
    assert row is not None  # noqa: S101 -- cards were found there
    return score.node_score(ledger.fullness.item(row), ledger.facts(row), request.gpu_containers)
