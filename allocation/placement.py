"""Where a pod goes: every node judged, the best chosen, its cards picked. Nothing here changes the ledger."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from allocation import score
from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.constraints import Constraints
from allocation.fit import ABSENT, Demand, Verdicts, curable, verdicts
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.order import choose
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
    """

    container: str = ""
    cards: int = 0
    counts: dict[CardReason, int] = {}
    node_reason: str = ""
    resolvable: bool = True

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
    if candidates:
        rows = np.array([row for _, row in candidates])
        sign = -1 if constraints.node_policy == "binpack" else 1
        values = score.node_scores(ledger.total[:, rows], ledger.used[:, rows], request).tolist()
        scored = zip(values, (name for name, _ in candidates), strict=True)
        ranked = sorted(scored, key=lambda pair: (sign * pair[0], pair[1]))
    else:
        ranked = []
    chosen: Allocation | None = None
    scores: list[tuple[str, float]] = []
    # A container that passed the comparison of columns is known to fit; several, or a group of cards that must belong
    # together, have to be tried.
    sure = len(request.gpu_containers) == 1 and not constraints.numa_bind
    for value, name in ranked:
        if chosen is None or not sure:
            outcome = _place_on(ledger, request, name, demand=demand, room=room)
            if isinstance(outcome, Rejection):
                rejections[name] = outcome
                continue
            chosen = chosen or outcome
        scores.append((name, value))
    if chosen is None:
        return NoPlacement(rejections)
    return Placement(chosen, charges(chosen, request), tuple(scores), rejections)


def _place_on(ledger: Ledger, request: PodRequest, node: str, *, demand: Demand, room: Room) -> Allocation | Rejection:
    """Try the containers one after the other.

    Regular and sidecar containers add up; an init container stands beside the sidecars started before it only.
    """
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return Rejection(node_reason=NODE_UNREGISTERED)
    cards = demand.cards(row)
    cards.used = cards.used.copy()
    mutex = "mutex" in demand.constraints.card_policies
    picked: dict[str, tuple[CardShare, ...]] = {}
    for container in request.gpu_containers:
        judged = verdicts(cards, container, mutex=mutex, room=room)
        fitting = np.flatnonzero(judged == CardReason.FITS).tolist()
        able = int(curable(cards, container, judged).sum())
        if len(fitting) < container.count:
            return _rejection(judged, inventory, container, able=able)
        choice = choose(cards, fitting, inventory, request=container, constraints=demand.constraints)
        if not choice.positions:
            judged[list(choice.scattered)] = CardReason.NumaNotFit
            return _rejection(judged, inventory, container, able=able)
        shares = tuple(_share(inventory, position, container) for position in choice.positions)
        picked[container.name] = shares
        if container.kind is not Kind.INIT:
            for position, share in zip(choice.positions, shares, strict=True):
                cards.used[:, position] += (share.memory_mib, share.cores, 1)
            room = room.less(
                memory_mib=sum(share.memory_mib for share in shares),
                cores=sum(share.cores for share in shares),
                cards=len(shares),
            )
    return Allocation(node, picked)


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
        able = curable(cards, container, judged).sum(axis=1).tolist()
        enough = (judged == CardReason.FITS).sum(axis=1) >= container.count
        for position in np.flatnonzero(~enough).tolist():
            name = known[position][0]
            inventory = ledger.inventory(name)
            if inventory is not None:
                rejections[name] = _rejection(judged[position], inventory, container, able=able[position])
        known = [pair for pair, fits in zip(known, enough.tolist(), strict=True) if fits]
    return known


def _rejection(judged: Verdicts, inventory: NodeInventory, container: ContainerRequest, *, able: int) -> Rejection:
    cards = len(inventory.cards)
    if container.count > cards:
        return Rejection(container.name, cards, node_reason=NODE_INSUFFICIENT_DEVICE, resolvable=False)
    codes = Counter(judged.tolist())
    codes.pop(ABSENT, None)
    counts = {CardReason(code): count for code, count in codes.items()}
    few = counts.pop(CardReason.FITS, 0)
    if few:
        counts[CardReason.AllocatedCardsInsufficientRequest] = few
    return Rejection(container.name, cards, counts, resolvable=able >= container.count)


def _share(inventory: NodeInventory, position: int, container: ContainerRequest) -> CardShare:
    card = inventory.cards[position]
    return CardShare(card.uuid, card.index, container.memory_on(card.memory_mib), container.cores)
