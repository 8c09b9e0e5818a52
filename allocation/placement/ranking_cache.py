"""Incremental placement: the decision of `allocation.placement.placement`, for requests that repeat.

`place` evaluates every node each time and reports why each does not fit. The cache keeps the rankings of the requests
that it has seen; a test compares both decisions over random histories.
"""

from collections import OrderedDict
from collections.abc import Hashable

from allocation.constraints import Constraints
from allocation.isolation import Isolation
from allocation.ledger.ledger import Ledger
from allocation.placement.node_ranking import Eligible, NodeRanking
from allocation.placement.stranding import Stranding
from allocation.request import PodRequest

_PLAIN = Isolation.NONE
_MAX_RANKINGS = 256
_MAX_USERS_RANKINGS = 32
"""Rankings for pods that list the indexes or the bandwidth that they want, of which users can write very many: they
must not displace those of other pods."""


class RankingCache:
    """The node rankings over one ledger that were used last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rankings: OrderedDict[Hashable, NodeRanking] = OrderedDict()
        self._users_rankings: OrderedDict[Hashable, NodeRanking] = OrderedDict()

    def ranking(
        self,
        request: PodRequest,
        constraints: Constraints,
        *,
        eligible: Eligible | None = None,
        stranding: Stranding | None = None,
        key: Hashable = None,
    ) -> NodeRanking:
        """Return the ranking of nodes for a request; `key` identifies `eligible` and `stranding`."""
        name, topology = (_signature(request), constraints, key), constraints.topology
        rankings, most = self._rankings, _MAX_RANKINGS
        if topology is not None and (topology.prefer_ids or topology.min_bandwidth_gbps):
            rankings, most = self._users_rankings, _MAX_USERS_RANKINGS
        ranking = rankings.get(name)
        if ranking is None:
            ranking = rankings[name] = NodeRanking(self._ledger, request, constraints, eligible, stranding)
            if len(rankings) > most:
                rankings.popitem(last=False)
        else:
            rankings.move_to_end(name)
        return ranking


def _signature(request: PodRequest) -> Hashable:
    """Return the part of a request that decides where it fits: everything but the names of its containers."""
    amounts = tuple(
        (
            container.kind,
            container.count,
            container.memory_mib,
            container.memory_percent,
            container.cores,
            container.whole,
            container.tflops,
        )
        for container in request.gpu_containers
    )
    return amounts if request.isolation is _PLAIN else (request.isolation, amounts)
