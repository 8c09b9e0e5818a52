"""Filters all nodes at once: on which of them each container fits by itself, their scores, and why the others do not.

Whether the containers fit together, and on which cards, has to be tried on a node (`allocation.placement.placement`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.placement import rejection, score
from allocation.placement.card_sets import NO_SET, CardSets
from allocation.placement.fit import Cards, ConstraintMasks, Verdicts, fitting, resolvable, verdicts
from allocation.placement.node_values import NodeValues
from allocation.placement.query import ContainerQuery, PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection
from allocation.reasons import CardReason

Rows = NDArray[np.int64]
"""Rows of the ledger."""
Values = NDArray[np.float64]


class FilteredRows(msgspec.Struct, frozen=True):
    """The requested nodes, divided into those that may take a pod and those that cannot.

    Attributes:
        requested: the row of each requested node, -1 if its inventory is unknown.
        rows: those on which each container fits by itself, in ascending order.
        values: how good each of `rows` is; higher is better (`allocation.placement.node_values`).
        scores: how full each of `rows` would be.
        rejections: the other nodes; nodes with equal verdicts share one object.
    """

    requested: Rows
    rows: Rows
    values: Values
    scores: Values
    rejections: dict[str, Rejection]

    def by_node(self, values: NDArray[Any], otherwise: object) -> NDArray[Any]:
        """Return the value of each requested node; `values` are those of `rows`, other nodes get `otherwise`."""
        by_row = np.full(self.requested.max(initial=-1) + 2, otherwise, values.dtype)  # the last is that of row -1
        by_row[self.rows] = values
        return by_row[self.requested]


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


def filter_nodes(ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]) -> FilteredRows:
    """Return which of `nodes` may take a pod, and how good they are."""
    requested = ledger.rows(nodes)
    rejections = dict.fromkeys((nodes[place] for place in np.flatnonzero(requested < 0).tolist()), UNREGISTERED)
    rows = np.sort(requested[requested >= 0])
    masks, values = ConstraintMasks(ledger, query.constraints), NodeValues(ledger, query.constraints)
    if values.fabrics is not None:
        accepted = values.fabrics.accepted(rows)
        refused = rows[~accepted]
        refusals = map(values.fabrics.rejection, refused.tolist())
        rejections |= {name: each for name, each in zip(ledger.names(refused), refusals, strict=True) if each}
        rows = rows[accepted]
    worths = np.full(len(rows), np.inf if query.request.gpu_containers else 0.0)
    for container in query.request.gpu_containers:
        each = query.for_container(container)
        found = _evaluate(masks, rows, partial(_worths, query=each, sets=values.sets))
        fits = found != NO_SET
        if not fits.all():
            rejections |= _rejections(masks, rows[~fits], each, values.sets)
            rows, worths, found = rows[fits], worths[fits], found[fits]
        worths = np.minimum(worths, found)
    scores = score.node_scores(ledger, query.request.gpu_containers)[rows]
    return FilteredRows(requested, rows, values.of_rows(rows, worths, scores), scores, rejections)


def rank_nodes(ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]) -> RankedNodes:
    """Filter and rank `nodes` for a pod: the best first, then by name."""
    filtered = filter_nodes(ledger, query, nodes)
    best = best_first(ledger, filtered.rows, filtered.values)
    names = ledger.names(filtered.rows[best])
    values = {}
    if not NodeValues(ledger, query.constraints).is_score:
        values = dict(zip(names, filtered.values[best].tolist(), strict=True))
    return RankedNodes(dict(zip(names, filtered.scores[best].tolist(), strict=True)), values, filtered.rejections)


def best_first(ledger: Ledger, rows: Rows, values: Values) -> NDArray[np.int64]:
    """Return the positions of `rows` by their values, the highest first, and then by the names of their nodes."""
    place_of = np.full(len(ledger.fullness), -1, np.int64)
    place_of[rows] = np.arange(len(rows))
    by_name = place_of[ledger.order()]
    by_name = by_name[by_name >= 0]
    best: NDArray[np.int64] = by_name[np.argsort(-values[by_name], kind="stable")]
    return best


def _evaluate(masks: ConstraintMasks, rows: Rows, evaluate: Callable[[Cards], NDArray[Any]]) -> NDArray[Any]:
    """Return the result of `evaluate` for each of `rows`.

    If these are most rows of the ledger it evaluates all: gathering some rows costs more than evaluating the others.
    """
    if 2 * rows.size < masks.ledger.fullness.size:
        return evaluate(masks.cards(rows))
    return evaluate(masks.cards(slice(None)))[rows]


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
    masks: ConstraintMasks, rows: Rows, query: ContainerQuery, sets: CardSets | None
) -> dict[str, Rejection]:
    """Return why a container does not fit on the nodes of `rows`."""
    lines = _evaluate(masks, rows, partial(_lines, query=query, sets=sets))
    keys: list[bytes] = np.ascontiguousarray(lines).view(f"V{lines.shape[1] * lines.itemsize}").ravel().tolist()
    by_key = {
        key: rejection.of_cards(lines[place, :-1], query.request, resolvable=bool(lines[place, -1]))
        for key, place in dict(zip(keys, range(len(keys)), strict=True)).items()
    }
    return dict(zip(masks.ledger.names(rows), map(by_key.__getitem__, keys), strict=True))
