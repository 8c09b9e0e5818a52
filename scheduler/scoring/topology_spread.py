"""Topology spread with ScheduleAnyway: the fewer matching pods a node's domains have, the better.

The rules are those of kube-scheduler's score plugin PodTopologySpread (v1.34,
pkg/scheduler/framework/plugins/podtopologyspread). Its default constraints for pods without any, which depend on
Services and ReplicaSets, are not applied.
"""

import math
from collections import Counter
from collections.abc import KeysView, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocation.steps import Steps
from scheduler import selectors
from scheduler.filters import topology_spread
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Pod
from scheduler.pod_spec.constraints import SpreadConstraint
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import BEST

_HOST_NAME: Final = "kubernetes.io/hostname"
_STEP: Final = 256
"""Nodes whose pods are counted between two interruptions."""


def concerns(pod: Pod) -> bool:
    """Whether the pod has such a constraint."""
    return any(each.when_unsatisfiable == "ScheduleAnyway" for each in pod.spec.topology_spread_constraints)


def scores(pod: Pod, candidates: Candidates, node_cache: NodeCache) -> Steps[Scores]:
    """Return the score of each candidate; 0 for one that does not have all topology keys."""
    constraints = [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "ScheduleAnyway"]
    labels: dict[str, Sequence[str | None]] = {}
    for constraint in constraints:
        labels[constraint.topology_key] = yield from candidates.labels(constraint.topology_key)
    is_scored = np.array([None not in of_node for of_node in zip(*labels.values(), strict=True)], np.bool_)
    raw = np.zeros(len(candidates))
    for constraint in constraints:
        yield
        raw += yield from _raw(constraint, labels, is_scored, pod=pod, node_cache=node_cache, candidates=candidates)
    return _normalised(_rounded(raw), is_scored)


def _raw(
    constraint: SpreadConstraint,
    labels: Mapping[str, Sequence[str | None]],
    is_scored: NDArray[np.bool_],
    *,
    pod: Pod,
    node_cache: NodeCache,
    candidates: Candidates,
) -> Steps[NDArray[np.float64]]:
    """Return how many matching pods one constraint finds in the domain of each candidate, weighted.

    Domains that are few have many pods each. The logarithm of their number keeps them from outweighing others.
    """
    selector = topology_spread.selector(constraint, pod)
    pods = topology_spread.matching_pods(selector, pod.metadata.namespace, node_cache.pod_index)
    if constraint.topology_key == _HOST_NAME:
        # Each node is a domain, whatever the constraint's policies are.
        size = int(np.count_nonzero(is_scored))
        counts = [pods[name] for name in candidates.names]
    else:
        domains = labels[constraint.topology_key]
        by_domain = yield from _by_domain(constraint, pods, pod=pod, keys=labels.keys(), node_cache=node_cache)
        size = len({value for value, scored in zip(domains, is_scored.tolist(), strict=True) if scored})
        counts = [by_domain.get(value, 0) for value in domains]
    return np.array(counts, np.float64) * math.log(size + 2) + float(constraint.max_skew - 1)


def _by_domain(
    constraint: SpreadConstraint, pods: Mapping[str, int], *, pod: Pod, keys: KeysView[str], node_cache: NodeCache
) -> Steps[Mapping[str | None, int]]:
    """Count the pods in each domain, on nodes that have all `keys` and that the constraint's policies include."""
    counts: Counter[str | None] = Counter()
    matches, nodes = selectors.node_matcher(pod.spec), node_cache.nodes
    for position, (name, count) in enumerate(pods.items()):
        if position % _STEP == _STEP - 1:
            yield
        node = nodes.get(name)
        if node is None or not keys <= node.metadata.labels.keys():
            continue
        if topology_spread.is_counted(constraint, pod, node, matches):
            counts[node.metadata.labels[constraint.topology_key]] += count
    return counts


def _rounded(raw: NDArray[np.float64]) -> Scores:
    """Round half up, as Go does with numbers that are not negative."""
    whole = np.floor(raw)
    rounded: Scores = (whole + (raw - whole >= 0.5)).astype(np.int64)
    return rounded


def _normalised(raw: Scores, is_scored: NDArray[np.bool_]) -> Scores:
    """Return 100 for the fewest pods, less for more; 100 everywhere if no pod counts."""
    scored = raw[is_scored]
    lowest, highest = (scored.min(), scored.max()) if len(scored) else (0, 0)
    normalised = BEST * (highest + lowest - raw) // highest if highest else np.full_like(raw, BEST)
    return np.where(is_scored, normalised, 0)
