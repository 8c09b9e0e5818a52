"""Where a pod goes: every node judged, the best chosen, its cards picked. Nothing here changes the ledger."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import rejection
from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.constraints import Constraints
from allocation.fit import Cards, Demand, curable, verdicts
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.node_cards import NodeCards
from allocation.order import Choice, choose
from allocation.quota import UNLIMITED, Room
from allocation.reasons import CardReason
from allocation.rejection import UNREGISTERED, Rejection
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.score import node_scores
from allocation.standing import UNFIT
from allocation.survey import sift, survey


class Placement(msgspec.Struct, frozen=True):
    """A decision.

    Attributes:
        allocation: the cards of each container.
        charges: what to reserve.
        scores: the fitting nodes with their scores, best first; the first is the chosen one.
        rejections: the other nodes.
    """

    allocation: Allocation
    charges: tuple[Charge, ...]
    scores: dict[str, float]
    rejections: dict[str, Rejection]


Watcher = Callable[[ContainerRequest, NodeCards, Room, Choice], None]
"""Told of each container that is tried on a node: the cards and the room before it, and what it would get of them."""


class NoPlacement(msgspec.Struct, frozen=True):
    """No node fits; one rejection each."""

    rejections: dict[str, Rejection]


def place(
    ledger: Ledger,
    request: PodRequest,
    nodes: Sequence[str],
    *,
    constraints: Constraints,
    room: Room = UNLIMITED,
) -> Placement | NoPlacement:
    """Choose a node among `nodes` and its cards for a pod; `room` is what its namespace's quotas leave.

    Ties are broken by the node's name, cards by free memory and index, so the same state gives the same answer.
    """
    found = survey(ledger, request, nodes, constraints=constraints, room=room)
    sure = _is_sure(request, constraints)
    tried: dict[str, Allocation] = {}
    rejections = found.rejections
    for name in found.scores:
        outcome = place_on(ledger, request, name, constraints=constraints, room=room)
        if isinstance(outcome, Rejection):
            rejections[name] = outcome
        else:
            tried[name] = outcome
            if sure:
                break
    if not tried:
        return NoPlacement(rejections)
    chosen = next(iter(tried.values()))
    scores = found.scores if sure else {name: found.scores[name] for name in tried}
    return Placement(chosen, charges(chosen, request), scores, rejections)


def worths(
    ledger: Ledger, request: PodRequest, nodes: Sequence[str], *, constraints: Constraints, room: Room = UNLIMITED
) -> tuple[NDArray[np.float64], dict[str, Rejection]]:
    """Answer how good `place` finds each of `nodes`, and its rejections; no node is ranked where that need not be.

    The more the better, and `UNFIT` where it would not choose the node.
    """
    sign = 1 if constraints.node_policy == "binpack" else -1
    if _is_sure(request, constraints):
        found = sift(ledger, request, nodes, constraints=constraints, room=room)
        scores = node_scores(ledger, request.gpu_containers)[found.rows]
        return found.by_node(sign * scores, otherwise=UNFIT), found.rejections
    outcome = place(ledger, request, nodes, constraints=constraints, room=room)
    by_name = outcome.scores if isinstance(outcome, Placement) else {}
    return np.array([sign * by_name[name] if name in by_name else UNFIT for name in nodes]), outcome.rejections


def _is_sure(request: PodRequest, constraints: Constraints) -> bool:
    """Whether what passes the comparison of columns fits.

    Several containers, or a group of cards that must belong together, have to be tried.
    """
    return len(request.gpu_containers) == 1 and not constraints.numa_bind


def place_on(
    ledger: Ledger,
    request: PodRequest,
    node: str,
    *,
    constraints: Constraints,
    room: Room,
    watcher: Watcher | None = None,
) -> Allocation | Rejection:
    """Try the containers on one node, one after the other; `watcher` is told of each.

    Regular and sidecar containers add up; an init container stands beside the sidecars started before it only.
    """
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return UNREGISTERED
    cards = NodeCards(ledger, row, constraints)
    picked: dict[str, tuple[CardShare, ...]] = {}
    containers = request.gpu_containers
    for container in containers:
        fitting = cards.fitting(container, room)
        choice = Choice(scattered=())
        if len(fitting) >= container.count:
            choice = choose(cards, fitting, inventory, request=container, constraints=constraints)
        if watcher is not None:
            watcher(container, cards, room, choice)
        if not choice.positions:
            columns = cards_of(ledger, row, cards, constraints)
            judged = verdicts(columns, container, mutex="mutex" in constraints.card_policies, room=room)
            able = int(curable(columns, container, judged).sum()) >= container.count
            judged[list(choice.scattered)] = CardReason.NumaNotFit
            return rejection.of_cards(judged, container, curable=able)
        shares = tuple(_share(inventory, position, container) for position in choice.positions)
        picked[container.name] = shares
        if container.kind is not Kind.INIT and container is not containers[-1]:
            for position, share in zip(choice.positions, shares, strict=True):
                cards.take(position, memory_mib=share.memory_mib, cores=share.cores)
            if room.is_limited:
                room = room.less(
                    memory_mib=sum(share.memory_mib for share in shares),
                    cores=sum(share.cores for share in shares),
                    cards=len(shares),
                )
    return Allocation(node, picked)


def cards_of(ledger: Ledger, row: int, cards: NodeCards, constraints: Constraints) -> Cards:
    """Answer the cards of a row with what the pod's earlier containers took of them."""
    columns = Demand(ledger, constraints).cards(row)
    columns.used = columns.used.copy()
    columns.used[:, : len(cards.numa)] = cards.used
    return columns


def _share(inventory: NodeInventory, position: int, container: ContainerRequest) -> CardShare:
    card = inventory.cards[position]
    if card.instance is not None:
        return CardShare(card.uuid, card.index, card.memory_mib, card.cores, card.parent)
    return CardShare(card.uuid, card.index, container.memory_on(card.memory_mib), container.cores)
