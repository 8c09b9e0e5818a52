"""Where a pod goes: every node judged, the best chosen, its cards picked. Nothing here changes the ledger."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from allocation import fit, score
from allocation.allocation import Allocation, CardShare, Charge, charges
from allocation.inventory import NodeInventory
from allocation.ledger import Columns, Ledger
from allocation.reasons import NODE_INSUFFICIENT_DEVICE, NODE_UNREGISTERED, CardReason, summary
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import CardPolicy, NodePolicy


class Rejection(msgspec.Struct, frozen=True):
    """Why a node cannot take the pod: a reason per card, or one for the whole node.

    Attributes:
        container: the container that does not fit, empty where the node as a whole does not.
        cards: how many cards the node has.
        counts: cards by reason; they sum to `cards`.
        node_reason: set where no card was judged.
        resolvable: whether a finished or evicted pod could cure it.
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
    node_policy: NodePolicy,
    card_policy: CardPolicy,
) -> Placement | NoPlacement:
    """Choose a node among `nodes` and its cards for a pod.

    Ties are broken by the node's name, cards by free memory and index, so the same state gives the same answer.
    """
    rejections: dict[str, Rejection] = {}
    candidates = _candidates(ledger, request, nodes, rejections)
    if candidates:
        rows = np.array([row for _, row in candidates])
        sign = -1 if node_policy == "binpack" else 1
        values = score.node_scores(ledger.total[:, rows], ledger.used[:, rows], request).tolist()
        scored = zip(values, (name for name, _ in candidates), strict=True)
        ranked = sorted(scored, key=lambda pair: (sign * pair[0], pair[1]))
    else:
        ranked = []
    chosen: Allocation | None = None
    scores: list[tuple[str, float]] = []
    single = len(request.gpu_containers) == 1
    for value, name in ranked:
        # One container that passed the comparison of columns is known to fit; several have to be tried together.
        if chosen is None or not single:
            outcome = place_on(ledger, request, name, card_policy=card_policy)
            if isinstance(outcome, Rejection):
                rejections[name] = outcome
                continue
            chosen = chosen or outcome
        scores.append((name, value))
    if chosen is None:
        return NoPlacement(rejections)
    return Placement(chosen, charges(chosen, request), tuple(scores), rejections)


def place_on(ledger: Ledger, request: PodRequest, node: str, *, card_policy: CardPolicy) -> Allocation | Rejection:
    """Pick the cards of every container of a pod on one node, or say why not.

    Regular and sidecar containers add up; an init container stands beside the sidecars started before it only.
    """
    row, inventory = ledger.row(node), ledger.inventory(node)
    if row is None or inventory is None:
        return Rejection(node_reason=NODE_UNREGISTERED)
    steady = ledger.used[:, row].copy()
    total = ledger.total[:, row]
    picked: dict[str, tuple[CardShare, ...]] = {}
    for container in request.gpu_containers:
        judged = fit.verdicts(total, steady, ledger.present[row], ledger.healthy[row], container)
        fitting = np.flatnonzero(judged == CardReason.FITS)
        if len(fitting) < container.count:
            return _rejection(judged, inventory, container)
        positions = _pick(total, steady, fitting, container, card_policy)
        shares = tuple(_share(inventory, position, container) for position in positions)
        picked[container.name] = shares
        if container.kind is not Kind.INIT:
            for position, share in zip(positions, shares, strict=True):
                steady[:, position] += (share.memory_mib, share.cores, 1)
    return Allocation(node, picked)


def _candidates(
    ledger: Ledger, request: PodRequest, nodes: Sequence[str], rejections: dict[str, Rejection]
) -> list[tuple[str, int]]:
    """Keep the nodes on which every container fits by itself; note why for the others."""
    known: list[tuple[str, int]] = []
    for name in nodes:
        row = ledger.row(name)
        if row is None:
            rejections[name] = Rejection(node_reason=NODE_UNREGISTERED, resolvable=False)
        else:
            known.append((name, row))
    for container in request.gpu_containers:
        if not known:
            break
        rows = np.array([row for _, row in known])
        judged = fit.verdicts(
            ledger.total[:, rows], ledger.used[:, rows], ledger.present[rows], ledger.healthy[rows], container
        )
        enough = (judged == CardReason.FITS).sum(axis=1) >= container.count
        for position in np.flatnonzero(~enough).tolist():
            name = known[position][0]
            inventory = ledger.inventory(name)
            if inventory is not None:
                rejections[name] = _rejection(judged[position], inventory, container)
        known = [pair for pair, fits in zip(known, enough.tolist(), strict=True) if fits]
    return known


def _rejection(judged: fit.Verdicts, inventory: NodeInventory, container: ContainerRequest) -> Rejection:
    cards = len(inventory.cards)
    if container.count > cards:
        return Rejection(container.name, cards, node_reason=NODE_INSUFFICIENT_DEVICE, resolvable=False)
    counts = Counter(CardReason(code) for code in judged.tolist() if code != fit.ABSENT)
    few = counts.pop(CardReason.FITS, 0)
    if few:
        counts[CardReason.AllocatedCardsInsufficientRequest] = few
    return Rejection(container.name, cards, dict(counts))


def _pick(
    total: Columns, used: Columns, fitting: np.typing.NDArray[np.intp], container: ContainerRequest, policy: CardPolicy
) -> list[int]:
    """Order the fitting cards by policy and take as many as are asked for."""
    scores = score.card_scores(total, used, container)
    sign = -1 if policy == "binpack" else 1
    free = total[0] - used[0]
    return sorted(fitting.tolist(), key=lambda card: (sign * scores[card], sign * -free[card], card))[: container.count]


def _share(inventory: NodeInventory, position: int, container: ContainerRequest) -> CardShare:
    card = inventory.cards[position]
    return CardShare(card.uuid, card.index, container.memory_on(card.memory_mib), container.cores)
