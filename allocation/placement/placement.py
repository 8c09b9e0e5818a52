"""Places a pod: filters and ranks all nodes, then selects the cards on the best one. The cards are only read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.constraints import Constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import Flags
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import card_requests, node_places, rejection
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.card_requests import CardRequests
from allocation.placement.card_selection import Choice, choose
from allocation.placement.card_sets import NO_SET, CardSets
from allocation.placement.fit import ABSENT, Cards, ConstraintMasks, Verdicts, resolvable, verdicts
from allocation.placement.node_cards import NodeCards
from allocation.placement.node_filter import filter_nodes, rank_nodes
from allocation.placement.node_platforms import NodePlatforms
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.settings import NodePolicy
from allocation.steps import Steps

_TOO_FEW: Final = Choice()
"""What is chosen of fewer cards than a container requests."""


class Placement(msgspec.Struct, frozen=True):
    """A node and cards for a pod.

    Attributes:
        allocation: the cards of each container.
        charges: what to reserve.
        scores: the fitting nodes with their scores, best first; the first is the chosen one.
        values: how good each of them is (`allocation.placement.node_values`); empty if that is its score.
        rejections: the other nodes; empty unless they were requested.
    """

    allocation: Allocation
    charges: tuple[Charge, ...]
    scores: dict[str, float]
    values: dict[str, float] = {}
    rejections: dict[str, Rejection] = {}


class NoPlacement(msgspec.Struct, frozen=True):
    """No node fits; one rejection for each."""

    rejections: dict[str, Rejection]


Observer = Callable[[ContainerRequest, NodeCards, Headroom, Choice], None]
"""Called for each container that is tried on a node: the cards and the headroom before it, and its selected cards."""


def place(cards: LedgerView, query: PlacementQuery, nodes: Sequence[str]) -> Steps[Placement | NoPlacement]:
    """Choose a node among `nodes` and its cards for a pod.

    Ties are broken by node name, and by free memory and index of the cards, so equal states give equal results. If the
    ledger changes between two steps, the result may be out of date.
    """
    ranked = yield from rank_nodes(cards, query, nodes)
    is_sure = _is_sure(query)
    fitting: dict[str, Allocation] = {}
    rejections = ranked.rejections
    for name in ranked.scores:
        outcome = place_on(cards.of(name), query, name)
        if isinstance(outcome, Rejection):
            rejections[name] = outcome
        else:
            fitting[name] = outcome
            if is_sure:
                break
        yield
    if not fitting:
        return NoPlacement(rejections)
    chosen = next(iter(fitting.values()))
    scores = ranked.scores if is_sure else {name: ranked.scores[name] for name in fitting}
    return Placement(chosen, charges(chosen, query.request), scores, ranked.values, rejections)


def scores_of(
    cards: LedgerView, query: PlacementQuery, nodes: Sequence[str]
) -> Steps[tuple[NDArray[np.float64], dict[str, Rejection]]]:
    """Return the score that `place` gives each of `nodes`, and its rejections, without ranking where possible.

    A higher score is better, whatever the node policy; `INFEASIBLE` if `place` would not choose the node.
    """
    if _is_sure(query):
        filtered = yield from filter_nodes(cards, query, nodes)
        return filtered.values, filtered.rejections
    outcome = yield from place(cards, query, nodes)
    placed = outcome if isinstance(outcome, Placement) else None
    scores, values = (placed.scores, placed.values) if placed is not None else ({}, {})
    return values_of(nodes, scores, values, policy=query.constraints.node_policy), outcome.rejections


def values_of(
    nodes: Sequence[str], scores: Mapping[str, float], values: Mapping[str, float], *, policy: NodePolicy
) -> NDArray[np.float64]:
    """Return how good each of `nodes` is; higher is better, and `INFEASIBLE` is for nodes without a score.

    `scores` and `values` are those of a `Placement`, `policy` is the node policy of the pod.
    """
    if values:
        return np.array([values[name] if name in scores else INFEASIBLE for name in nodes])
    sign = 1 if policy == "binpack" else -1
    return np.array([sign * scores[name] if name in scores else INFEASIBLE for name in nodes])


def _is_sure(query: PlacementQuery) -> bool:
    """Whether every node that passes the filter fits.

    Several containers, or cards that must come from one NUMA node, have to be tried on the node.
    """
    return len(query.request.gpu_containers) == 1 and not query.constraints.numa_bind


def place_on(
    ledger: Ledger, query: PlacementQuery, node: str, *, observer: Observer | None = None
) -> Allocation | Rejection:
    """Try a pod's containers on one node, one after the other.

    Regular and sidecar containers add up; an init container adds up only with the sidecars started before it.
    """
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return UNREGISTERED
    constraints, headroom = query.constraints, query.headroom
    refusal = NodePlatforms(ledger, constraints).rejection(row) if constraints.demands_platform else None
    refusal = refusal or (node_places.rejection(ledger, row) if ledger.has_rules else None)
    if refusal is not None:
        return refusal
    sets = CardSets(ledger, constraints.topology) if constraints.topology is not None else None
    cards = NodeCards(ledger, row, constraints, query.request.isolation)
    requests = card_requests.of_node(query.bound, inventory, cards)
    picked: dict[str, tuple[CardShare, ...]] = {}
    containers = query.request.gpu_containers
    for container in containers:
        fitting = (cards if requests is None else requests).fitting(container, headroom)
        choice = _TOO_FEW
        if len(fitting) >= container.count:
            choice = choose(cards, fitting, inventory, request=container, constraints=constraints, sets=sets)
        if observer is not None:
            observer(container, cards, headroom, choice)
        if not choice.positions:
            return _rejection(
                ledger, cards, choice, query=query, container=container, requests=requests, headroom=headroom, sets=sets
            )
        shares = _shares(inventory, choice.positions, container, requests)
        if container.tflops or (len(containers) > 1 and query.request.requests_tflops):
            shares = tuple(_with_tflops(share, container, inventory) for share in shares)
        picked[container.name] = shares
        if container.kind is not Kind.INIT and container is not containers[-1]:
            headroom = _reserve(cards, choice.positions, shares, headroom)
    return Allocation(node, picked, isolation=query.request.isolation)


def _reserve(cards: NodeCards, positions: Sequence[int], shares: Sequence[CardShare], headroom: Headroom) -> Headroom:
    """Reserve the shares of a container for those that are tried after it, and return what it leaves of the quotas."""
    total_tflops = 0
    for position, share in zip(positions, shares, strict=True):
        tflops = share.tflops or cards.facts.rates[position] * share.cores
        cards.reserve(position, memory_mib=share.memory_mib, cores=share.cores, tflops=tflops)
        total_tflops += tflops
    if not headroom.is_limited:
        return headroom
    return headroom.less(
        memory_mib=sum(share.memory_mib for share in shares),
        cores=sum(share.cores for share in shares),
        tflops=total_tflops,
        cards=len(shares),
    )


def _rejection(
    ledger: Ledger,
    cards: NodeCards,
    choice: Choice,
    *,
    query: PlacementQuery,
    container: ContainerRequest,
    requests: CardRequests | None,
    headroom: Headroom,
    sets: CardSets | None,
) -> Rejection:
    """Return why a node has no cards for a container, which may be a matter of the pod's earlier containers."""
    judged, can_fit = judge(
        cards_of(ledger, cards.row, cards, query.constraints), query, container, requests=requests, headroom=headroom
    )
    possible = np.flatnonzero(can_fit).tolist()
    able = len(possible) >= container.count
    if able and sets is not None:
        able = sets.worth(cards.row, possible, container.count) != NO_SET
    judged[list(choice.scattered)] = CardReason.NumaNotFit
    judged[list(choice.unconnected)] = CardReason.CardTopologyMismatch
    return rejection.of_cards(judged, container, resolvable=able)


def judge(
    columns: Cards,
    query: PlacementQuery,
    container: ContainerRequest,
    *,
    requests: CardRequests | None,
    headroom: Headroom,
) -> tuple[Verdicts, Flags]:
    """Return by card of one node the verdict on a container, and whether it would fit if no pod held any of the card.

    `requests` are None unless they differ by card; `headroom` is what earlier containers leave of the pod's quotas.
    """
    judged = np.full(columns.present.shape, ABSENT, np.int8)
    can_fit = np.zeros(columns.present.shape, np.bool_)
    for request, positions in card_requests.by_request(requests, container, len(judged)):
        each = verdicts(columns, query.for_container(request, headroom))
        judged[positions] = each[positions]
        can_fit[positions] = resolvable(columns, request, each)[positions]
    return judged, can_fit


def cards_of(ledger: Ledger, row: int, cards: NodeCards, constraints: Constraints) -> Cards:
    """Return the cards of a row, with what the pod's earlier containers use of them."""
    columns = ConstraintMasks(ledger, constraints).cards(row)
    columns.used = columns.used.copy()
    columns.used[:, : len(cards.facts.usable)] = cards.used
    columns.counts_tflops = cards.counts_tflops
    return columns


def _shares(
    inventory: NodeInventory, positions: Sequence[int], container: ContainerRequest, requests: CardRequests | None
) -> tuple[CardShare, ...]:
    """Return what a container gets of the cards at `positions`."""
    if requests is None:
        return tuple([_share(inventory.cards[position], container) for position in positions])
    return tuple(_bound_share(inventory, position, container, requests) for position in positions)


def _share(card: Card, request: ContainerRequest) -> CardShare:
    if card.instance is not None:
        return CardShare(card.uuid, card.index, card.memory_mib, card.cores, card.parent)
    share = CardShare(card.uuid, card.index, request.memory_on(card.memory_mib), request.cores_on(card.tflops))
    if not request.memory_limit_mib and not request.cores_limit:
        return share
    # Nothing can use more than the card has.
    return share.up_to(min(request.memory_limit_mib, card.memory_mib), min(request.cores_limit, card.cores))


def _with_tflops(share: CardShare, container: ContainerRequest, inventory: NodeInventory) -> CardShare:
    """Return a share of a pod that requests TFLOPs with those that it is; an instance has all of its own."""
    tflops = container.tflops
    if not tflops or share.parent:
        tflops = share.cores * next(card.tflops for card in inventory.cards if card.uuid == share.uuid)
    return msgspec.structs.replace(share, tflops=tflops)


def _bound_share(
    inventory: NodeInventory, position: int, container: ContainerRequest, requests: CardRequests
) -> CardShare:
    request = requests.on_card(container, position)
    share = _share(inventory.cards[position], request)
    # Of a container that has whole cards by its claim, the mark of the claim tells; an instance is always whole.
    is_whole = request.whole and not container.whole and not share.parent
    return msgspec.structs.replace(share, whole=True) if is_whole else share
