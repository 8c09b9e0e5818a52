"""Places a pod: filters and ranks all nodes, then selects the cards on the best one. The ledger is only read."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.constraints import Constraints
from allocation.inventory import NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement import rejection
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.card_selection import Choice, choose
from allocation.placement.fit import Cards, ConstraintMasks, resolvable, verdicts
from allocation.placement.node_cards import NodeCards
from allocation.placement.node_filter import filter_nodes, rank_nodes
from allocation.placement.query import PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection
from allocation.placement.score import node_scores
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import ContainerRequest, Kind
from allocation.steps import Steps


class Placement(msgspec.Struct, frozen=True):
    """A node and cards for a pod.

    Attributes:
        allocation: the cards of each container.
        charges: what to reserve.
        scores: the fitting nodes with their scores, best first; the first is the chosen one.
        rejections: the other nodes; empty if nobody asked for them.
    """

    allocation: Allocation
    charges: tuple[Charge, ...]
    scores: dict[str, float]
    rejections: dict[str, Rejection] = {}


class NoPlacement(msgspec.Struct, frozen=True):
    """No node fits; one rejection for each."""

    rejections: dict[str, Rejection]


Observer = Callable[[ContainerRequest, NodeCards, Headroom, Choice], None]
"""Called for each container that is tried on a node: the cards and the headroom before it, and its selected cards."""


def place(ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]) -> Steps[Placement | NoPlacement]:
    """Choose a node among `nodes` and its cards for a pod.

    Ties are broken by node name, and by free memory and index of the cards, so equal states give equal results. If the
    ledger changes between two steps, the result may be out of date.
    """
    ranked = rank_nodes(ledger, query, nodes)
    is_sure = _is_sure(query)
    fitting: dict[str, Allocation] = {}
    rejections = ranked.rejections
    for name in ranked.scores:
        outcome = place_on(ledger, query, name)
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
    return Placement(chosen, charges(chosen, query.request), scores, rejections)


def scores_of(
    ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]
) -> Steps[tuple[NDArray[np.float64], dict[str, Rejection]]]:
    """Return the score that `place` gives each of `nodes`, and its rejections, without ranking where possible.

    A higher score is better, whatever the node policy; `INFEASIBLE` if `place` would not choose the node.
    """
    sign = 1 if query.constraints.node_policy == "binpack" else -1
    if _is_sure(query):
        filtered = filter_nodes(ledger, query, nodes)
        scores = node_scores(ledger, query.request.gpu_containers)[filtered.rows]
        return filtered.by_node(sign * scores, otherwise=INFEASIBLE), filtered.rejections
    outcome = yield from place(ledger, query, nodes)
    by_name = outcome.scores if isinstance(outcome, Placement) else {}
    return np.array([sign * by_name[name] if name in by_name else INFEASIBLE for name in nodes]), outcome.rejections


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
    cards = NodeCards(ledger, row, constraints)
    picked: dict[str, tuple[CardShare, ...]] = {}
    containers = query.request.gpu_containers
    for container in containers:
        fitting = cards.fitting(container, headroom)
        choice = Choice(scattered=())
        if len(fitting) >= container.count:
            choice = choose(cards, fitting, inventory, request=container, constraints=constraints)
        if observer is not None:
            observer(container, cards, headroom, choice)
        if not choice.positions:
            columns = cards_of(ledger, row, cards, constraints)
            judged = verdicts(columns, query.for_container(container, headroom))
            able = int(resolvable(columns, container, judged).sum()) >= container.count
            judged[list(choice.scattered)] = CardReason.NumaNotFit
            return rejection.of_cards(judged, container, resolvable=able)
        shares = tuple(_share(inventory, position, container) for position in choice.positions)
        picked[container.name] = shares
        if container.kind is not Kind.INIT and container is not containers[-1]:
            for position, share in zip(choice.positions, shares, strict=True):
                cards.reserve(position, memory_mib=share.memory_mib, cores=share.cores)
            if headroom.is_limited:
                headroom = headroom.less(
                    memory_mib=sum(share.memory_mib for share in shares),
                    cores=sum(share.cores for share in shares),
                    cards=len(shares),
                )
    return Allocation(node, picked)


def cards_of(ledger: Ledger, row: int, cards: NodeCards, constraints: Constraints) -> Cards:
    """Return the cards of a row, with what the pod's earlier containers use of them."""
    columns = ConstraintMasks(ledger, constraints).cards(row)
    columns.used = columns.used.copy()
    columns.used[:, : len(cards.numa)] = cards.used
    return columns


def _share(inventory: NodeInventory, position: int, container: ContainerRequest) -> CardShare:
    card = inventory.cards[position]
    if card.instance is not None:
        return CardShare(card.uuid, card.index, card.memory_mib, card.cores, card.parent)
    return CardShare(card.uuid, card.index, container.memory_on(card.memory_mib), container.cores)
