"""Filters many nodes at once: on which of them each container fits by itself, their scores, and why the others do not.

Whether the containers fit together, and on which cards, has to be tried on a node (`allocation.placement.placement`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement import node_places, rejection, score
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.card_sets import NO_SET, CardSets
from allocation.placement.fit import Cards, ConstraintMasks, Verdicts, fitting, resolvable, verdicts
from allocation.placement.node_values import NodeValues
from allocation.placement.query import ContainerQuery, PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection
from allocation.reasons import CardReason
from allocation.steps import Steps

Rows = NDArray[np.int64]
"""Rows of the ledger."""
Values = NDArray[np.float64]

_Known = dict[tuple[str, bytes], Rejection]
"""Rejections by container and by the verdicts on a node's cards."""

_STEP: Final = 1_000
"""Nodes that are filtered or ordered between two interruptions: some milliseconds where no two have equal verdicts."""


class FilteredNodes(msgspec.Struct, frozen=True):
    """The requested nodes, divided into those that may take a pod and those that cannot.

    Attributes:
        values: how good each requested node is; higher is better (`allocation.placement.node_values`), and `INFEASIBLE`
            where a container does not fit by itself.
        scores: how full each node would be on which every container fits by itself.
        rejections: the other nodes; nodes with equal verdicts share one object.
    """

    values: Values
    scores: Values
    rejections: dict[str, Rejection]


class RankedNodes(msgspec.Struct, frozen=True):
    """Filtered nodes in order.

    Attributes:
        scores: the nodes on which each container fits by itself, best first.
        values: how good each of them is; empty if that is its score, by the node policy of the pod.
        rejections: the others.
    """

    scores: dict[str, float]
    values: dict[str, float]
    rejections: dict[str, Rejection]


def filter_nodes(cards: LedgerView, query: PlacementQuery, nodes: Sequence[str]) -> Steps[FilteredNodes]:
    """Return which of `nodes` may take a pod, and how good they are; a node may change after it was filtered."""
    values, scores = np.full(len(nodes), INFEASIBLE), np.zeros(len(nodes))
    rejections: dict[str, Rejection] = {}
    known: _Known = {}
    if query.stranding is not None:
        yield from query.stranding.prepare()
    for number, (ledger, places) in enumerate(cards.parts(nodes, most=_STEP)):
        if number:
            yield
        part = [nodes[place] for place in places.tolist()]
        values[places], scores[places], rejected = _filter(ledger, query, part, known)
        rejections |= rejected
    return FilteredNodes(values, scores, rejections)


def _filter(
    ledger: Ledger, query: PlacementQuery, nodes: Sequence[str], known: _Known
) -> tuple[Values, Values, dict[str, Rejection]]:
    """Return the values, the scores and the rejections of some nodes of one ledger."""
    requested = ledger.rows(nodes)
    rejections = dict.fromkeys((nodes[place] for place in np.flatnonzero(requested < 0).tolist()), UNREGISTERED)
    rows = np.sort(requested[requested >= 0])
    containers = query.request.gpu_containers
    masks = ConstraintMasks(ledger, query.constraints)
    values = NodeValues(ledger, query.constraints, containers, query.stranding)
    if values.platforms is not None:
        accepted = values.platforms.accepted(rows)
        refused = rows[~accepted]
        refusals = map(values.platforms.rejection, refused.tolist())
        rejections |= {name: each for name, each in zip(ledger.names(refused), refusals, strict=True) if each}
        rows = rows[accepted]
    rows, refusals_of_full = node_places.divide(ledger, rows)
    rejections |= refusals_of_full
    worths = np.full(len(rows), np.inf if containers else 0.0)
    for container in containers:
        each = query.for_container(container)
        found = _evaluate(masks, rows, partial(_worths, query=each, sets=values.sets))
        fits = found != NO_SET
        if not fits.all():
            rejections |= _rejections(masks, rows[~fits], each, values.sets, known)
            rows, worths, found = rows[fits], worths[fits], found[fits]
        worths = np.minimum(worths, found)
    if not rows.size:
        return np.full(len(nodes), INFEASIBLE), np.zeros(len(nodes)), rejections
    scores = score.node_scores(ledger, containers)[rows]
    by_row = np.full((2, requested.max(initial=-1) + 2), INFEASIBLE)  # the last is that of row -1
    by_row[:, rows] = values.of_rows(rows, worths, scores), scores
    found = by_row[:, requested]
    return found[0], found[1], rejections


def rank_nodes(cards: LedgerView, query: PlacementQuery, nodes: Sequence[str]) -> Steps[RankedNodes]:
    """Filter and rank `nodes` for a pod: the best first, then by name."""
    filtered = yield from filter_nodes(cards, query, nodes)
    fitting = np.flatnonzero(filtered.values != INFEASIBLE)
    names, values = [nodes[place] for place in fitting.tolist()], filtered.values[fitting]
    if len(names) > _STEP:
        yield
    best = best_first(names, values)
    names = [names[place] for place in best.tolist()]
    scores = dict(zip(names, filtered.scores[fitting[best]].tolist(), strict=True))
    by_name = {}
    if not NodeValues(cards.ledger, query.constraints, stranding=query.stranding).is_score:
        by_name = dict(zip(names, values[best].tolist(), strict=True))
    return RankedNodes(scores, by_name, filtered.rejections)


def best_first(names: Sequence[str], values: Values) -> NDArray[np.int64]:
    """Return the positions of nodes by their values, the highest first, and then by their `names`."""
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    best: NDArray[np.int64] = by_name[np.argsort(-values[by_name], kind="stable")]
    return best


def _evaluate(masks: ConstraintMasks, rows: Rows, evaluate: Callable[[Cards], NDArray[Any]]) -> NDArray[Any]:
    """Return the result of `evaluate` for each of `rows`, which ascend.

    If these are most rows from the first to the last, all are evaluated: gathering some costs more than that.
    """
    if not rows.size:
        return evaluate(masks.cards(rows))
    first, last = rows.item(0), rows.item(-1)
    if 2 * rows.size < last - first:
        return evaluate(masks.cards(rows))
    return evaluate(masks.cards(slice(first, last + 1)))[rows - first]


def _worths(cards: Cards, *, query: ContainerQuery, sets: CardSets | None) -> Values:
    """Return for each node the worth of the best set of fitting cards, 0 if sets do not matter; `NO_SET` without one.

    A set has as many cards as the container requests.
    """
    fits, count = fitting(cards, query), query.request.count
    worths = np.where(np.count_nonzero(fits, axis=1) >= count, 0.0, NO_SET)
    return worths if sets is None else np.where(worths == NO_SET, NO_SET, sets.worths(cards.rows, fits, count))


def _lines(cards: Cards, *, query: ContainerQuery, sets: CardSets | None) -> Verdicts:
    """Return the verdicts of each node's cards, followed by whether enough would fit if no pod held any of them."""
    count, judged = query.request.count, verdicts(cards, query)
    possible = resolvable(cards, query.request, judged)
    able = np.count_nonzero(possible, axis=1) >= count
    if sets is not None:
        able &= sets.worths(cards.rows, possible, count) != NO_SET
        fits = judged == CardReason.FITS
        is_unconnected = np.count_nonzero(fits, axis=1) >= count
        judged[fits & is_unconnected[:, np.newaxis]] = CardReason.CardTopologyMismatch
    return np.column_stack((judged, able))


def _rejections(
    masks: ConstraintMasks, rows: Rows, query: ContainerQuery, sets: CardSets | None, known: _Known
) -> dict[str, Rejection]:
    """Return why a container does not fit on the nodes of `rows`; what is not `known` yet is added there."""
    name = query.request.name
    lines = _evaluate(masks, rows, partial(_lines, query=query, sets=sets))
    keys: list[bytes] = np.ascontiguousarray(lines).view(f"V{lines.shape[1] * lines.itemsize}").ravel().tolist()
    by_key = {}
    for key, place in dict(zip(keys, range(len(keys)), strict=True)).items():
        if (name, key) not in known:
            line = lines[place]
            known[name, key] = rejection.of_cards(line[:-1], query.request, resolvable=bool(line[-1]))
        by_key[key] = known[name, key]
    return dict(zip(masks.ledger.names(rows), map(by_key.__getitem__, keys), strict=True))
