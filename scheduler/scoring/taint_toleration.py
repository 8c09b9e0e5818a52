"""Taints with effect PreferNoSchedule: the fewer of a node's taints the pod does not tolerate, the better.

The rules are those of kube-scheduler's score plugin TaintToleration (pkg/scheduler/framework/plugins/tainttoleration,
v1.34).
"""

from allocation.steps import Steps
from scheduler import selectors
from scheduler.filters.digest import digest
from scheduler.filters.node_index import SOFT, NodeIndex
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import relative_to_highest


def concerns(pod: Pod, index: NodeIndex) -> bool:
    """Whether any node has such a taint that the pod does not tolerate."""
    return any(not selectors.tolerates(pod.spec, taint) for taint in index.soft_taints)


def scores(pod: Pod, candidates: Candidates) -> Steps[Scores]:
    """Return the score of each candidate."""
    spec = pod.spec

    def untolerated(node: Node) -> int:
        return sum(taint.effect == SOFT and not selectors.tolerates(spec, taint) for taint in node.spec.taints)

    raw = yield from candidates.numbers(untolerated, ("taint toleration", digest(spec.tolerations)))
    return relative_to_highest(raw, is_better=False)
