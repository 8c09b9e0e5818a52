"""Fast path: reuses cached node rankings for pods with the same shape and node requirements.

Its result equals that of the full path (`scheduler.cycle.evaluation` of every node). It has no result for static
allocations. Rules about other pods, and volumes for unbound claims, are looked at on the best nodes alone, one after
the other; if none of these takes the pod, the full path looks at all. The reasons come from the full path.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from itertools import islice
from typing import Final, cast

import msgspec
import numpy as np

from allocation.allocation import Allocation, charges
from allocation.ledger.ledger import Ledger
from allocation.ledger.row_table import RowTable
from allocation.placement.node_ranking import NodeRanking
from allocation.placement.placement import place_on
from allocation.placement.query import PlacementQuery
from allocation.placement.ranking_cache import RankingCache
from allocation.quota import Headroom, minimum_request
from allocation.steps import Steps
from scheduler.cycle import messages
from scheduler.cycle.result import Scheduled, ScheduleResult, Unschedulable
from scheduler.filters.digest import digest
from scheduler.filters.node_filter import EquivalenceClass, NodeFilter
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import NodeColumns
from scheduler.scoring.node_scorer import NodeScorer, best_first
from scheduler.state.closed_nodes import ClosedNodes
from scheduler.state.workload import Workload

_CLASSES: Final = 256
_RUNNERS_UP: Final = 2


class FastPath:
    """Caches the ranking of nodes for each request and each equivalence class of pods."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        nodes: Mapping[str, Node],
        node_filter: NodeFilter,
        workload: Workload,
        closed_nodes: ClosedNodes,
        scorer: NodeScorer,
    ) -> None:
        """Rank the nodes of `ledger` that `node_filter` admits and that are not among `closed_nodes`.

        `nodes` has all nodes, whether they have cards or not. What a pod costs others depends on `workload`; its
        preferences are scored by `scorer`.
        """
        self._ledger = ledger
        self._nodes = nodes
        self._node_filter = node_filter
        self._workload = workload
        self._closed_nodes = closed_nodes
        self._scorer = scorer
        self._columns = NodeColumns(ledger, nodes)
        self._rankings = RankingCache(ledger)
        self._classes: OrderedDict[Hashable, _EligibleNodes] = OrderedDict()
        self._rejected: dict[bytes, Unschedulable] = {}
        """By kind of pods, the result of the full path for the last one, as long as nothing has changed since."""
        self._rejected_at = (-1, -1)
        self._rankings_of: OrderedDict[bytes, NodeRanking] = OrderedDict()
        """By kind of pods that no node took, the ranking in which none did."""

    def find(
        self, pod: Pod, requirements: GpuRequirements, headroom: Headroom, *, explain: bool
    ) -> Steps[ScheduleResult | None]:
        """Return the result for a pod that requests cards, or None if only the full path has one.

        Without `explain` the result may lack the reasons why no node takes the pod.
        """
        pods = self._node_filter.equivalence_class(pod)
        closed = self._closed_nodes.now()
        key = (pods.key, minimum_request(requirements.own).cards)
        eligible = self._classes.get(key)
        if eligible is None:
            eligible = self._classes[key] = _EligibleNodes(
                ledger=self._ledger, node_filter=self._node_filter, closed_nodes=closed, pods=pods, count=key[1]
            )
            if len(self._classes) > _CLASSES:
                self._classes.popitem(last=False)
        else:
            self._classes.move_to_end(key)
        stranding = self._workload.of(pod, requirements.constraints)
        ranking = self._rankings.ranking(
            requirements.request,
            requirements.constraints,
            eligible=eligible,
            stranding=stranding,
            key=key,
        )
        best = yield from ranking.place(requirements.request, headroom=headroom, runners_up=_RUNNERS_UP)
        if best is None:
            kind = self._kind(pod, key, requirements, headroom)
            self._remember_ranking(kind, ranking)
            return self.rejected(kind, explain=explain)
        preferences = self._scorer.preferences(pod)
        individual = self._node_filter.individual_admission(pod)
        if individual is not None:
            admits, most = individual
            if not preferences:  # their scores are normalised over the nodes that take the pod itself
                best = ranking.place_where(admits, requirements.request, headroom=headroom, most=most)
            if preferences or best is None:
                return self._known(self._kind(pod, key, requirements, headroom))
        if preferences:
            return (yield from self._place_preferred(pod, requirements, headroom, ranking, preferences))
        fitting, left = ranking.count(), None
        if stranding is not None:
            containers = requirements.request.gpu_containers
            left = partial(stranding.left, self._ledger, best.allocation.node, containers)
        note = messages.find_fit(
            best.scores,
            fitting=fitting,
            rejected=len(self._nodes) - fitting,
            is_exact=individual is None and self._is_exact(requirements, headroom),
            left=left,
        )
        return Scheduled.on_cards(self._ledger, requirements, best.allocation, best.charges, note=note, path="cached")

    def may_fit(self, kind: Hashable) -> bool:
        """Return False if no node takes any pod of a kind that `find` saw rejected; otherwise one may.

        Where the evaluation takes long it is left to a decision, which can be interrupted.
        """
        ranking = self._rankings_of.get(cast("bytes", kind))
        if ranking is None or not ranking.is_known or self._ledger.mig_nodes:
            return True
        self._closed_nodes.now()  # the ledger logs those that are closed or open from now on
        return ranking.count() > 0

    def _remember_ranking(self, kind: bytes, ranking: NodeRanking) -> None:
        self._rankings_of[kind] = ranking
        self._rankings_of.move_to_end(kind)
        if len(self._rankings_of) > _CLASSES:
            self._rankings_of.popitem(last=False)

    def kind(self, pod: Pod, requirements: GpuRequirements, headroom: Headroom) -> bytes:
        """Return the kind of a pod that requests cards: pods of one kind are rejected for the same reasons."""
        key = (self._node_filter.equivalence_class(pod).key, minimum_request(requirements.own).cards)
        return self._kind(pod, key, requirements, headroom)

    def _kind(self, pod: Pod, key: Hashable, requirements: GpuRequirements, headroom: Headroom) -> bytes:
        rules = None
        volumes = self._node_filter.volumes_of(pod)
        has_unbound = volumes is not None and volumes.unbound is not None
        if has_unbound or self._node_filter.depends_on_other_pods(pod):
            meta, spec = pod.metadata, pod.spec
            claims = (meta.name, spec.volumes) if has_unbound else None  # which volumes fit depends on each claim
            rules = (meta.namespace, meta.labels, spec.affinity, spec.topology_spread_constraints, claims)
        return digest((key, requirements.request, requirements.constraints, headroom, rules))

    def rejected(self, kind: bytes, *, explain: bool) -> Unschedulable | None:
        """Return the result for a pod of a kind that no node takes; None if its reasons have to be computed.

        They always are in a fleet with MIG, because the pod may wait for an instance.
        """
        known = self._known(kind)
        if known is None and not explain and not self._ledger.mig_nodes:
            return Unschedulable("", frozenset(), kind=kind, path="cached")
        return known

    def _known(self, kind: bytes) -> Unschedulable | None:
        """Return the result of the full path for the last pod of a kind if it is still valid."""
        is_current = self._ledger.changes.state == self._rejected_at and not self._ledger.mig_nodes
        return self._rejected.get(kind) if is_current else None

    def _place_preferred(
        self,
        pod: Pod,
        requirements: GpuRequirements,
        headroom: Headroom,
        ranking: NodeRanking,
        preferences: Collection[str],
    ) -> Steps[Scheduled | None]:
        """Return the result for a pod with `preferences`, scored over the nodes that the ranking has as feasible.

        None if these may not be exactly the nodes that fit, over which scores are normalised.
        """
        ledger = self._ledger
        if not self._is_exact(requirements, headroom):
            return None
        mark, rows = ledger.changes.mark, ranking.feasible()[0]
        candidates = self._columns.candidates(rows)
        scores = yield from self._scorer.score(pod, preferences, candidates)
        # From here on it is one step. Nodes that were taken meanwhile drop out; others keep their scores.
        if not ledger.changes.reaches(mark):
            return None  # the rows belong to other nodes now
        feasible, cards = ranking.feasible()
        if not np.array_equal(feasible, rows):
            cards = cards[np.isin(feasible, rows)]
            is_left = np.isin(rows, feasible)
            candidates = self._columns.candidates(rows[is_left])
            scores = {name: each[is_left] for name, each in scores.items()}
        total = self._scorer.total(candidates.names, cards, scores)
        best = [*islice(best_first(total.totals, cards), 1 + _RUNNERS_UP)]
        if not best:
            return None
        by_name = {candidates.names[place]: total.totals.item(place) for place in best}
        query = PlacementQuery(requirements.request, requirements.constraints, headroom)
        outcome = place_on(ledger, query, next(iter(by_name)))
        if not isinstance(outcome, Allocation):
            return None
        fitting = len(candidates)
        note = messages.find_fit(by_name, fitting=fitting, rejected=len(self._nodes) - fitting)
        costs = charges(outcome, requirements.request)
        return Scheduled.on_cards(ledger, requirements, outcome, costs, note=note, path="cached")

    def _is_exact(self, requirements: GpuRequirements, headroom: Headroom) -> bool:
        """Whether the ranking counts exactly the nodes that fit; it evaluates containers one by one, without quotas."""
        if len(requirements.request.gpu_containers) > 1 or requirements.constraints.numa_bind:
            return False
        is_uniform = requirements.request.gpu_containers[0].memory_mib is not None and not self._ledger.mig_nodes
        return is_uniform or not headroom.is_limited

    def remember(self, kind: bytes, result: Unschedulable) -> None:
        """Cache the result of the full path for pods of the same kind, until anything changes."""
        if self._ledger.changes.state != self._rejected_at or len(self._rejected) >= _CLASSES:
            self._rejected.clear()
            self._rejected_at = self._ledger.changes.state
        self._rejected[kind] = msgspec.structs.replace(result, path="cached", kind=kind)


class _EligibleNodes(RowTable):
    """The nodes with cards that one class of pods may use now (`allocation.placement.node_ranking.Eligible`).

    Pods of a class have the same selectors, tolerations, CPU requests, ports and so on. Inter-pod affinity and topology
    spread are not included, because their results change with every other pod.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        node_filter: NodeFilter,
        closed_nodes: Collection[str],
        pods: EquivalenceClass,
        count: int,
    ) -> None:
        """Evaluate `node_filter` and `closed_nodes`, whose changes the ledger logs, for pods with `count` shares."""
        super().__init__(ledger, self.row, np.bool_)
        self._node_filter = node_filter
        self._closed = closed_nodes
        self._admits = node_filter.admission(pods)
        self._count = count

    def row(self, row: int) -> bool:
        """Return whether the node of one row, which must be in use, is eligible."""
        node = self._ledger.node(row)
        return node not in self._closed and self._admits(node) and not self._node_filter.is_short(node, self._count)
