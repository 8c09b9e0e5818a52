"""All queues: what each has, is entitled to, and waits for. `GET /api/queues` returns it."""

import math
from collections import defaultdict
from typing import Final

from allocation import ineffective
from scheduler.api.queue_types import QueuesView, QueueView
from scheduler.fairness.queue_status import allocated, dominant_resource
from scheduler.fairness.standings import Standing, Standings
from scheduler.state.cluster_state import ClusterState

_NEXT: Final = 3


def view(state: ClusterState) -> QueuesView:
    """Return the queues of a state."""
    fair_share = state.fair_share
    following, cards = _next_pods(state), fair_share.capacity.cards()
    return QueuesView(
        bool(fair_share.queues),
        tuple(
            _queue(state, standing, following[str(standing.key)], cards)
            for standing in Standings(fair_share, state.queue.waiting).all()
        ),
    )


def finite(share: float) -> float | None:
    """Return a share as JSON can have it; None if it is infinite."""
    return share if math.isfinite(share) else None


def _next_pods(state: ClusterState) -> defaultdict[str, list[str]]:
    """Return the first waiting pods of each queue."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for entry in state.queue.in_order():
        pods = following[str(entry.key)]
        if entry.place != "held" and len(pods) < _NEXT:
            pods.append(str(entry.pod))
    return following


def _queue(state: ClusterState, standing: Standing, following: list[str], cards: int) -> QueueView:
    key, spec = standing.key, standing.spec
    return QueueView(
        name=str(key),
        exists=not key.name or state.fair_share.queues.get(key) is not None,
        weight=spec.weight,
        priority=spec.priority,
        suspended=spec.suspended,
        limits={name: spec.limits[name] for name in spec.limits if name in ineffective.counted(state.settings)},
        max_instances=spec.max_instances,
        reclaim=spec.reclaim,
        allocated=allocated(standing, state.settings),
        share=finite(float(standing.share)),
        dominant_resource=dominant_resource(standing, state.settings),
        weighted_share=finite(standing.weighted_share),
        entitlement=standing.entitlement,
        overused=standing.is_overused,
        underused=standing.is_underused,
        excess_cards=finite(standing.excess * cards),
        running=standing.use.pods,
        waiting=standing.waiting,
        next=tuple(following),
    )
