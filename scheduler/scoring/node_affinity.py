"""Preferred node affinity: the sum of the weights of the terms that match a node.

The rules are those of kube-scheduler's score plugin NodeAffinity (pkg/scheduler/framework/plugins/nodeaffinity, v1.34).
"""

from collections.abc import Callable

from allocation.steps import Steps
from scheduler import selectors
from scheduler.filters.digest import digest
from scheduler.objects import Node, Pod
from scheduler.pod_spec.constraints import PreferredTerm
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import relative_to_highest


def concerns(pod: Pod) -> bool:
    """Whether the pod prefers nodes by their labels or names."""
    return bool(_terms(pod))


def scores(pod: Pod, candidates: Candidates) -> Steps[Scores]:
    """Return the score of each candidate."""
    terms = _terms(pod)
    raw = yield from candidates.numbers(_sum_of_weights(terms), ("node affinity", digest(terms)))
    return relative_to_highest(raw, is_better=True)


def _terms(pod: Pod) -> tuple[PreferredTerm, ...]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    return affinity.preferred if affinity is not None else ()


def _sum_of_weights(terms: tuple[PreferredTerm, ...]) -> Callable[[Node], int]:
    """Return the raw score of a node; an empty term matches no node."""
    compiled = [
        (matches, term.weight) for term in terms if (matches := selectors.term_matcher(term.preference)) is not None
    ]

    def raw(node: Node) -> int:
        return sum(weight for matches, weight in compiled if matches(node))

    return raw
