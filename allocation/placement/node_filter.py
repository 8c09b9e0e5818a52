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
from allocation.placement.fit import Cards, ConstraintMasks, Verdicts, fitting, resolvable, verdicts
from allocation.placement.query import ContainerQuery, PlacementQuery
from allocation.placement.rejection import UNREGISTERED, Rejection

Rows = NDArray[np.int64]
"""Rows of the ledger."""


class FilteredRows(msgspec.Struct, frozen=True):
    """The requested nodes, divided into those that may take a pod and those that cannot.

    Attributes:
        requested: the row of each requested node, -1 if its inventory is unknown.
        rows: those on which each container fits by itself, in ascending order.
        rejections: the other nodes; nodes with equal verdicts share one object.
    """

    requested: Rows
    rows: Rows
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
        rejections: the others.
    """

    scores: dict[str, float]
    rejections: dict[str, Rejection]


def filter_nodes(ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]) -> FilteredRows:
    """Return which of `nodes` may take a pod."""
    requested = ledger.rows(nodes)
    rejections = dict.fromkeys((nodes[place] for place in np.flatnonzero(requested < 0).tolist()), UNREGISTERED)
    rows = np.sort(requested[requested >= 0])
    masks = ConstraintMasks(ledger, query.constraints)
    for container in query.request.gpu_containers:
        each = query.for_container(container)
        fits = _evaluate(masks, rows, partial(_enough, query=each))
        if not fits.all():
            rejections |= _rejections(masks, rows[~fits], each)
            rows = rows[fits]
    return FilteredRows(requested, rows, rejections)


def rank_nodes(ledger: Ledger, query: PlacementQuery, nodes: Sequence[str]) -> RankedNodes:
    """Filter and rank `nodes` for a pod."""
    filtered = filter_nodes(ledger, query, nodes)
    best, scores = rank_rows(ledger, query, filtered.rows)
    return RankedNodes(dict(zip(ledger.names(best), scores, strict=True)), filtered.rejections)


def rank_rows(ledger: Ledger, query: PlacementQuery, rows: Rows) -> tuple[Rows, list[float]]:
    """Return rows ordered by the pod's node policy, best first, then by node name; and their scores."""
    included = np.zeros(ledger.fullness.shape, np.bool_)
    included[rows] = True
    order = ledger.order()
    by_name = order[included[order]]
    scores = score.node_scores(ledger, query.request.gpu_containers)[by_name]
    best = np.argsort(-scores if query.constraints.node_policy == "binpack" else scores, kind="stable")
    return by_name[best], scores[best].tolist()


def _evaluate(masks: ConstraintMasks, rows: Rows, evaluate: Callable[[Cards], NDArray[Any]]) -> NDArray[Any]:
    """Return the result of `evaluate` for each of `rows`.

    If these are most rows of the ledger it evaluates all: gathering some rows costs more than evaluating the others.
    """
    if 2 * rows.size < masks.ledger.fullness.size:
        return evaluate(masks.cards(rows))
    return evaluate(masks.cards(slice(None)))[rows]


def _enough(cards: Cards, *, query: ContainerQuery) -> NDArray[np.bool_]:
    """Return for each node whether it has as many fitting cards as the container requests."""
    enough: NDArray[np.bool_] = np.count_nonzero(fitting(cards, query), axis=1) >= query.request.count
    return enough


def _lines(cards: Cards, *, query: ContainerQuery) -> Verdicts:
    """Return the verdicts of each node's cards, followed by whether enough would fit if no pod held any of them."""
    judged = verdicts(cards, query)
    able = np.count_nonzero(resolvable(cards, query.request, judged), axis=1) >= query.request.count
    return np.column_stack((judged, able))


def _rejections(masks: ConstraintMasks, rows: Rows, query: ContainerQuery) -> dict[str, Rejection]:
    """Return why a container does not fit on the nodes of `rows`."""
    lines = _evaluate(masks, rows, partial(_lines, query=query))
    keys: list[bytes] = np.ascontiguousarray(lines).view(f"V{lines.shape[1] * lines.itemsize}").ravel().tolist()
    by_key = {
        key: rejection.of_cards(lines[place, :-1], query.request, resolvable=bool(lines[place, -1]))
        for key, place in dict(zip(keys, range(len(keys)), strict=True)).items()
    }
    return dict(zip(masks.ledger.names(rows), map(by_key.__getitem__, keys), strict=True))
