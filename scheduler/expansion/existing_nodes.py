"""The nodes of the cluster, with pods that fit there although they are not placed yet, such as some of a gang."""

from collections.abc import Hashable, Sequence

from allocation.ledger import ledger_copy
from allocation.ledger.ledger_copy import LedgerCopy
from allocation.quota import Headroom
from allocation.steps import Steps, finish
from scheduler.cycle import evaluation
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


class ExistingNodes:
    """The nodes of `state` as they are, and what the pods of one round would take there; nothing is reserved."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rankings: dict[Hashable, Sequence[str]] = {}
        self._taken: dict[str, LedgerCopy] = {}
        self._added: dict[str, list[Pod]] = {}

    def take(self, pod: Pod, shape: Hashable, requirements: GpuRequirements, headroom: Headroom) -> Steps[str]:
        """Return a node that takes a pod beside those before it, or an empty string; pods of a `shape` are alike."""
        if shape not in self._rankings:
            found = yield from evaluation.evaluate(self._state, pod, requirements, headroom)
            self._rankings[shape] = tuple(found.scores)
        rejected_nodes = self._state.rejected_nodes.of(requirements)
        for node in self._rankings[shape]:
            ledger = self._taken.get(node) or ledger_copy.of_node(self._state.ledger, node)
            if not finish(self._state.node_filter.filter(pod, (node,), added=self._added)).fitting:
                continue
            evaluated = evaluation.evaluate_on(
                ledger, requirements, node, rejected_nodes=rejected_nodes, headroom=headroom
            )
            if evaluated.scores:
                ledger.record(pod.uid, node, evaluated.charges)
                self._taken[node] = ledger
                self._added.setdefault(node, []).append(pod)
                return node
            yield
        self._rankings[shape] = ()
        return ""
