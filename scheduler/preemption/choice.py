"""Chooses the pods to preempt for one that fits nowhere: the cheapest of low priority on the cheapest node.

Nothing is changed or reserved here; the controller, `explain`, `simulate` and `/preempt` all call these functions.
"""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.placement.query import PlacementQuery
from allocation.quota import UNLIMITED
from allocation.steps import Steps, finish
from allocation.victims import MOST_PRIORITY
from scheduler.cycle import evaluation
from scheduler.cycle.evaluation import Evaluation
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.preemption.eligibility import Eligibility, EligiblePod
from scheduler.preemption.node_search import NodeSearch, Preemption
from scheduler.preemption.releasable import LEAVING, Releasable
from scheduler.state.cluster_state import ClusterState

_NODES: Final = 32
"""The number of nodes that are tried exactly for each priority of victims: those where the least has to become free."""
NOWHERE: Final = "evicting all eligible lower-priority pods would not make any node fit within its quotas"
_QUOTA: Final = (
    "its quota is exceeded, and the pods of lower priority that are charged to the same quota, and that it may preempt,"
    " hold too little"
)


class NoPreemption(msgspec.Struct, frozen=True):
    """No pod is preempted.

    Attributes:
        why: the reason, without the names of other pods.
    """

    why: str


class Chooser:
    """Chooses for one pod after another, with columns that are kept between choices."""

    def __init__(self, state: ClusterState, eligibility: Eligibility) -> None:
        """Choose in `state` by the rules of `eligibility`."""
        self.state = state
        self.eligibility = eligibility
        self._releasable = Releasable(state.ledger, eligibility.level)

    def refresh(self) -> Steps[None]:
        """Read what has changed since the last choice."""
        yield from self._releasable.refresh()

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of pods that may be preempted; None without any."""
        return next((level for level in self._releasable.levels(MOST_PRIORITY) if level > LEAVING), None)

    def choose(
        self,
        pod: Pod,
        *,
        among: Sequence[str] | None = None,
        prefer: str = "",
        earlier: Sequence[EligiblePod] | None = None,
    ) -> Steps[Preemption | NoPreemption]:
        """Return the pods to preempt for one that fits nowhere.

        Only nodes `among` are considered, by default all; the node `prefer` is tried before all others. A pod that
        gets a node only together with others of its gang preempts pods only in addition to those `earlier`, which are
        preempted for the others; None for a pod alone.
        """
        requirements = self._requirements(pod)
        if isinstance(requirements, NoPreemption):
            return requirements
        objection = self.eligibility.objection(pod, requirements, with_gang=earlier is not None)
        if objection:
            return NoPreemption(objection)
        search = NodeSearch(self.state, self.eligibility, pod, requirements, earlier=earlier or ())
        candidates = among if among is not None else self.state.rejected_nodes.candidates(requirements) or ()
        evaluated = yield from evaluation.evaluate(self.state, pod, requirements, UNLIMITED, among=candidates)
        if evaluated.scores:
            return (yield from self._for_quota(search, evaluated))
        nodes = {name for name, each in evaluated.rejections.items() if each.resolvable}
        yield
        nodes.update(name for name, each in evaluated.nodes.rejections.items() if each.resolvable)
        yield
        yield from self.refresh()
        found = yield from self._on_freed_node(search, {each.pod.spec.node_name for each in earlier or ()} & nodes)
        if found is None and prefer in nodes:
            found = yield from search.cheapest_on(prefer, below=search.below)
        found = found or (yield from self._on_cheapest_node(search, nodes))
        return self._confirm(search, found) or NoPreemption(NOWHERE)

    def _on_freed_node(self, search: NodeSearch, nodes: Collection[str]) -> Steps[Preemption | None]:
        """Return a place on a node from which pods go for others of the gang, and where no more have to go."""
        for node in sorted(nodes):
            yield
            found = yield from search.cheapest_on(node, below=LEAVING + 1)
            if found is not None:
                return found
        return None

    def _on_cheapest_node(self, search: NodeSearch, nodes: Collection[str]) -> Steps[Preemption | None]:
        """Return the cheapest choice on the nodes where the least has to become free, or None if none helps.

        First no pod is evicted, then those of the lowest priority, and so on; a last resort comes after all of them.
        """
        best = None
        query = PlacementQuery(search.requirements.request, search.requirements.constraints)
        levels = [LEAVING, *(level for level in self._releasable.levels(search.below) if level > LEAVING)]
        for level in levels:
            order = yield from self._releasable.order(query, level + 1)
            for name in itertools.islice((each for each in order if each in nodes and search.may_free(each)), _NODES):
                yield
                found = yield from search.cheapest_on(name, below=level + 1)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
            if best is not None and not best.is_last_resort:
                return best
        return best

    def _for_quota(self, search: NodeSearch, evaluated: Evaluation) -> Steps[Preemption | NoPreemption]:
        """Return the pods to preempt for one that would fit if only its quotas allowed it."""
        node = next(iter(evaluated.scores), "")  # none if the state has changed meanwhile
        found = yield from search.cheapest_on(node, below=search.pod.spec.priority)
        if found is not None and not found.victims and not found.leaving and not search.earlier:
            return NoPreemption("it fits without")
        return self._confirm(search, found) or NoPreemption(_QUOTA)

    def _confirm(self, search: NodeSearch, choice: Preemption | None) -> Preemption | None:
        """Return a choice by what is true in this step, in which the caller may hold the cards, or None."""
        if choice is None:
            return None
        search = NodeSearch(self.state, self.eligibility, search.pod, search.requirements, earlier=search.earlier)
        return finish(search.confirm(choice))

    def more_victims(
        self, pod: Pod, requirements: GpuRequirements, node: str, *, gone: Iterable[str]
    ) -> Preemption | None:
        """Return the pods to preempt on a node in addition to those `gone`; None if the pod will not fit."""
        search = NodeSearch(self.state, self.eligibility, pod, requirements, gone=gone)
        return finish(search.cheapest_on(node, below=pod.spec.priority))

    def _requirements(self, pod: Pod) -> GpuRequirements | NoPreemption:
        if pod.excess or self.state.unsupported(pod):
            return NoPreemption("it is held until it changes")
        try:
            return self.state.requirements.unlimited(pod)
        except AllocationError as error:
            return NoPreemption(str(error))
