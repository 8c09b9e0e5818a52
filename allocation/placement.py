"""Where a pod goes: every node judged, the best chosen, its cards picked. Nothing here changes the ledger."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import score
from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.constraints import Constraints
from allocation.fit import ABSENT, Cards, Demand, Verdicts, curable, verdicts
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.node_cards import NodeCards
from allocation.order import Choice, choose
from allocation.quota import UNLIMITED, Room
from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason, summary
from allocation.request import ContainerRequest, Kind, PodRequest


class Rejection(msgspec.Struct, frozen=True):
    """Why a node cannot take the pod: a reason per card, or one for the whole node.

    Attributes:
        container: the container that does not fit, empty where the node as a whole does not.
        cards: how many cards the node has.
        counts: cards by reason; they sum to `cards`.
        node_reason: set where no card was judged.
        resolvable: whether it could be cured by pods that finish or are evicted.
        judged: one int8 for each card, as it was judged; empty where no card was.
    """

    container: str = ""
    cards: int = 0
    counts: dict[CardReason, int] = {}
    node_reason: str = ""
    resolvable: bool = True
    judged: bytes = b""

    @property
    def verdicts(self) -> tuple[CardReason, ...]:
        """Why each card of the node does not help the container, by position."""
        codes = (code for code in np.frombuffer(self.judged, np.int8).tolist() if code != ABSENT)
        return tuple(CardReason(code or CardReason.AllocatedCardsInsufficientRequest) for code in codes)

    def __str__(self) -> str:
        """As HAMi prints it: `8/8 CardInsufficientMemory`."""
        return self.node_reason or summary(self.counts, self.cards)


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
    scores: tuple[tuple[str, float], ...]
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
    rejections: dict[str, Rejection] = {}
    demand = Demand(ledger, constraints)
    candidates = _candidates(ledger, request, nodes, rejections, demand=demand, room=room)
    chosen: Allocation | None = None
    scores: list[tuple[str, float]] = []
    # A container that passed the comparison of columns is known to fit; several, or a group of cards that must belong
    # together, have to be tried.
    sure = len(request.gpu_containers) == 1 and not constraints.numa_bind
    for value, name in ranked(ledger, request, candidates, constraints=constraints):
        if chosen is None or not sure:
            outcome = place_on(ledger, request, name, constraints=constraints, room=room)
            if isinstance(outcome, Rejection):
                rejections[name] = outcome
                continue
            chosen = chosen or outcome
        scores.append((name, value))
    if chosen is None:
        return NoPlacement(rejections)
    return Placement(chosen, charges(chosen, request), tuple(scores), rejections)


def ranked(
    ledger: Ledger, request: PodRequest, nodes: Sequence[tuple[str, int]], *, constraints: Constraints
) -> list[tuple[float, str]]:
    """Order nodes, given with their rows, by the pod's node policy: scores and names, the best first."""
    if not nodes:
        return []
    sign = -1 if constraints.node_policy == "binpack" else 1
    values = score.node_scores(ledger, request.gpu_containers)[[row for _, row in nodes]].tolist()
    scored = zip(values, (name for name, _ in nodes), strict=True)
    return sorted(scored, key=lambda pair: (sign * pair[0], pair[1]))


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
        return Rejection(node_reason=NODE_UNREGISTERED, resolvable=False)
    cards = NodeCards(ledger, row, inventory, constraints)
    picked: dict[str, tuple[CardShare, ...]] = {}
    for container in request.gpu_containers:
        fitting = cards.fitting(container, room)
        choice = Choice(scattered=())
        if len(fitting) >= container.count:
            choice = choose(cards, fitting, inventory, request=container, constraints=constraints)
        if watcher is not None:
            watcher(container, cards, room, choice)
        if not choice.positions:
            columns = cards_of(ledger, row, cards, constraints)
            judged = verdicts(columns, container, mutex="mutex" in constraints.card_policies, room=room)
            able = int(curable(columns, container, judged).sum())
            judged[list(choice.scattered)] = CardReason.NumaNotFit
            return _rejection(judged, container, able=able)
        shares = tuple(_share(inventory, position, container) for position in choice.positions)
        picked[container.name] = shares
        if container.kind is not Kind.INIT:
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


def _candidates(
    ledger: Ledger,
    request: PodRequest,
    nodes: Sequence[str],
    rejections: dict[str, Rejection],
    *,
    demand: Demand,
    room: Room,
) -> list[tuple[str, int]]:
    """Keep the nodes on which every container fits by itself; note why for the others."""
    known: list[tuple[str, int]] = []
    for name in nodes:
        row = ledger.row(name)
        if row is None:
            rejections[name] = Rejection(node_reason=NODE_UNREGISTERED, resolvable=False)
        else:
            known.append((name, row))
    mutex = "mutex" in demand.constraints.card_policies
    for container in request.gpu_containers:
        if not known:
            break
        rows = np.array([row for _, row in known])
        cards = demand.cards(rows)
        judged = verdicts(cards, container, mutex=mutex, room=room)
        able = curable(cards, container, judged).sum(axis=1)
        enough = (judged == CardReason.FITS).sum(axis=1) >= container.count
        failed = np.flatnonzero(~enough)
        for alike in _alike(judged[failed], able[failed]):
            # Nodes whose cards say the same are rejected by one and the same object.
            first = failed[alike[0]]
            rejection = _rejection(judged[first], container, able=able.item(first))
            rejections.update(dict.fromkeys((known[failed[place]][0] for place in alike), rejection))
        known = [pair for pair, fits in zip(known, enough.tolist(), strict=True) if fits]
    return known


def _alike(judged: Verdicts, able: NDArray[np.int64]) -> list[list[int]]:
    """Group rows, given by their places, whose cards have the same verdicts, and as many of them are able."""
    groups: dict[tuple[bytes, int], list[int]] = {}
    for place, (row, count) in enumerate(zip(judged, able.tolist(), strict=True)):
        groups.setdefault((row.tobytes(), count), []).append(place)
    return list(groups.values())


def _rejection(judged: Verdicts, container: ContainerRequest, *, able: int) -> Rejection:
    cards = int((judged != ABSENT).sum())
    if container.count > cards:
        return Rejection(
            container.name, cards, node_reason=NODE_INSUFFICIENT_DEVICE, resolvable=False, judged=judged.tobytes()
        )
    codes = Counter(judged.tolist())
    codes.pop(ABSENT, None)
    counts = {CardReason(code): count for code, count in codes.items()}
    few = counts.pop(CardReason.FITS, 0)
    if few:
        counts[CardReason.AllocatedCardsInsufficientRequest] = few
    return Rejection(container.name, cards, counts, resolvable=able >= container.count, judged=judged.tobytes())


def _share(inventory: NodeInventory, position: int, container: ContainerRequest) -> CardShare:
    card = inventory.cards[position]
    if card.instance is not None:
        return CardShare(card.uuid, card.index, card.memory_mib, card.cores, card.parent)
    return CardShare(card.uuid, card.index, container.memory_on(card.memory_mib), container.cores)
