"""Every node judged at once: on which ones each container fits by itself, how good they are, and why the others do not.

Whether the containers fit together, and on which cards, has to be tried on a node (`allocation.placement`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation import rejection, score
from allocation.constraints import Constraints
from allocation.fit import Cards, Demand, Verdicts, curable, fitting, verdicts
from allocation.ledger import Ledger
from allocation.quota import Room
from allocation.rejection import UNREGISTERED, Rejection
from allocation.request import ContainerRequest, PodRequest

Rows = NDArray[np.int64]
"""Rows of the ledger."""


class Sifted(msgspec.Struct, frozen=True):
    """Nodes on which a pod might go, and others.

    Attributes:
        asked: the row of each node that was asked about, -1 where no inventory is known.
        rows: those on which each container fits by itself, in ascending order.
        rejections: the other nodes; those whose cards say the same have one and the same object.
    """

    asked: Rows
    rows: Rows
    rejections: dict[str, Rejection]

    def by_node(self, values: NDArray[Any], otherwise: object) -> NDArray[Any]:
        """Answer, for each node that was asked about, the value of its row in `values`, which is like `rows`."""
        of_rows = np.full(self.asked.max(initial=-1) + 2, otherwise, values.dtype)  # the last is that of row -1
        of_rows[self.rows] = values
        return of_rows[self.asked]


class Survey(msgspec.Struct, frozen=True):
    """What there is to choose from.

    Attributes:
        scores: the nodes on which each container fits by itself, best first.
        rejections: the others.
    """

    scores: dict[str, float]
    rejections: dict[str, Rejection]


def sift(ledger: Ledger, request: PodRequest, nodes: Sequence[str], *, constraints: Constraints, room: Room) -> Sifted:
    """Answer which of `nodes` a pod might go to; `room` is what its namespace's quotas leave."""
    asked = ledger.rows(nodes)
    rejections = dict.fromkeys((nodes[place] for place in np.flatnonzero(asked < 0).tolist()), UNREGISTERED)
    rows = np.sort(asked[asked >= 0])
    demand = Demand(ledger, constraints)
    mutex = "mutex" in constraints.card_policies
    for container in request.gpu_containers:
        fits = _looked(demand, rows, partial(_enough, request=container, mutex=mutex, room=room))
        if not fits.all():
            rejections |= _rejections(demand, rows[~fits], container, mutex=mutex, room=room)
            rows = rows[fits]
    return Sifted(asked, rows, rejections)


def survey(
    ledger: Ledger, request: PodRequest, nodes: Sequence[str], *, constraints: Constraints, room: Room
) -> Survey:
    """Judge `nodes` for a pod; `room` is what its namespace's quotas leave."""
    found = sift(ledger, request, nodes, constraints=constraints, room=room)
    best, scores = ranked(ledger, request, found.rows, constraints=constraints)
    return Survey(dict(zip(ledger.names(best), scores, strict=True)), found.rejections)


def ranked(ledger: Ledger, request: PodRequest, rows: Rows, *, constraints: Constraints) -> tuple[Rows, list[float]]:
    """Order rows by the pod's node policy, the best first, equal ones by their nodes' names; with their scores."""
    asked = np.zeros(ledger.fullness.shape, np.bool_)
    asked[rows] = True
    order = ledger.order()
    by_name = order[asked[order]]
    scores = score.node_scores(ledger, request.gpu_containers)[by_name]
    best = np.argsort(-scores if constraints.node_policy == "binpack" else scores, kind="stable")
    return by_name[best], scores[best].tolist()


def _looked(demand: Demand, rows: Rows, look: Callable[[Cards], NDArray[Any]]) -> NDArray[Any]:
    """Answer what `look` says of the cards of each row.

    Where most rows are asked about it looks at all of them: to gather some costs more than to look at the others.
    """
    if 2 * rows.size < demand.ledger.fullness.size:
        return look(demand.cards(rows))
    return look(demand.cards(slice(None)))[rows]


def _enough(cards: Cards, *, request: ContainerRequest, mutex: bool, room: Room) -> NDArray[np.bool_]:
    """Answer which nodes have as many fitting cards as the container asks for."""
    fits = fitting(cards, request, mutex=mutex, room=room)
    answer: NDArray[np.bool_] = np.count_nonzero(fits, axis=1) >= request.count
    return answer


def _lines(cards: Cards, *, request: ContainerRequest, mutex: bool, room: Room) -> Verdicts:
    """Answer the verdicts of each node's cards, and behind them whether enough would fit if nobody had any of them."""
    judged = verdicts(cards, request, mutex=mutex, room=room)
    able = np.count_nonzero(curable(cards, request, judged), axis=1) >= request.count
    return np.column_stack((judged, able))


def _rejections(
    demand: Demand, rows: Rows, container: ContainerRequest, *, mutex: bool, room: Room
) -> dict[str, Rejection]:
    """Answer why a container does not fit on the nodes of `rows`."""
    lines = _looked(demand, rows, partial(_lines, request=container, mutex=mutex, room=room))
    keys: list[bytes] = np.ascontiguousarray(lines).view(f"V{lines.shape[1] * lines.itemsize}").ravel().tolist()
    whys = {
        key: rejection.of_cards(lines[place, :-1], container, curable=bool(lines[place, -1]))
        for key, place in dict(zip(keys, range(len(keys)), strict=True)).items()
    }
    return dict(zip(demand.ledger.names(rows), map(whys.__getitem__, keys), strict=True))
