"""The scores of the nodes that take a pod, by kube-scheduler and by ours."""

from collections.abc import Iterator, Sequence

import msgspec

from allocation.steps import finish
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.scoring.candidates import NodeList
from scheduler.scoring.node_scorer import NodeScorer
from scheduler.settings import ScoreWeights
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.kube_scheduler.comparison import Difference
from tests.scheduler.kube_scheduler.oracle import Expected
from tests.scheduler.kube_scheduler.selectors import Manifest
from tests.scheduler.support.builders import status

PLUGINS = {
    "node_affinity": "NodeAffinity",
    "taint_toleration": "TaintToleration",
    "pod_affinity": "InterPodAffinity",
    "topology_spread": "PodTopologySpread",
    "image_locality": "ImageLocality",
    "node_resources": "NodeResourcesFit",
}
"""By weight, the plugin of kube-scheduler that scores the same."""
BALANCE = "NodeResourcesBalancedAllocation"
"""The plugin of kube-scheduler whose score, of weight 1, has no counterpart."""
_WEIGHTS = ScoreWeights(network_blocks=0, image_locality=1, node_resources=1)
"""kube-scheduler's default weights."""


def score_differences(seed: int, cluster: Manifest, theirs: Expected, state: ClusterState) -> Iterator[Difference]:
    """Compare the scores of each plugin; one that does not apply to the pod may be absent, or score all nodes alike."""
    pod: Pod = msgspec.convert(cluster["pod"], Pod)
    scorer, nodes = NodeScorer(state.node_cache, _WEIGHTS), state.node_cache.nodes
    candidates = NodeList([nodes[name] for name in theirs.scores])
    ours = finish(scorer.score(pod, scorer.preferences(pod), candidates))
    for name, plugin in PLUGINS.items():
        actual = ours[name].tolist() if name in ours else None
        expected = [scores.plugins.get(plugin) for scores in theirs.scores.values()]
        if expected != actual and not (_is_neutral(expected) and _is_neutral(actual)):
            yield Difference(seed, ", ".join(theirs.scores), plugin, str(expected), str(actual))


def order_differences(seed: int, cluster: Manifest, theirs: Expected, state: ClusterState) -> Iterator[Difference]:
    """Compare the node that the pod gets, if it also asks for a card and the cards of all nodes are alike.

    The subject is "order" if the totals without balanced allocation differ, and otherwise balanced allocation.
    """
    for name in theirs.nodes:
        state.agent_reports.set(status(name, cards=1, memory=100_000))
    result = finish(SchedulingCycle(state, weights=_WEIGHTS).schedule(_with_card(cluster["pod"])))
    node = result.node if isinstance(result, Scheduled) else result.note
    totals = {name: scores.total for name, scores in theirs.scores.items()}
    compared = {name: total - theirs.scores[name].plugins.get(BALANCE, 0) for name, total in totals.items()}
    if compared.get(node) != max(compared.values()):
        yield Difference(seed, node, "order", str(compared), node)
    elif totals[node] != max(totals.values()):
        yield Difference(seed, node, BALANCE, str(totals), node)


def _is_neutral(scores: Sequence[int | None] | None) -> bool:
    return scores is None or len(set(scores)) == 1


def _with_card(manifest: Manifest) -> Pod:
    first, *others = manifest["spec"]["containers"]
    resources = first.get("resources", {})
    limits = {**resources.get("limits", {}), "nvidia.com/gpu": "1", "nvidia.com/gpumem": "1"}
    first = {**first, "resources": {**resources, "limits": limits}}
    spec = {**manifest["spec"], "schedulerName": "tranche", "containers": [first, *others]}
    made: Pod = msgspec.convert({**manifest, "spec": spec}, Pod)
    return made
