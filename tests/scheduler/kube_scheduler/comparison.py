"""The same clusters evaluated by kube-scheduler and by our filters, and where the two differ."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import finish
from lab import scheduling
from scheduler.objects import Namespace, Node, Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.kube_scheduler.selectors import Manifest
from tests.scheduler.support.builders import state

PLUGINS = {
    NodeReason.NodeUnschedulable: "NodeUnschedulable",
    NodeReason.NodeTainted: "TaintToleration",
    NodeReason.NodeSelectorMismatch: "NodeAffinity",
    NodeReason.NodePortTaken: "NodePorts",
    NodeReason.NodeInsufficientResource: "NodeResourcesFit",
    NodeReason.NodeTooManyPods: "NodeResourcesFit",
    NodeReason.TopologySpreadMismatch: "PodTopologySpread",
    NodeReason.PodAffinityMismatch: "InterPodAffinity",
    NodeReason.PodAntiAffinityMismatch: "InterPodAffinity",
}
"""By reason, the plugin of kube-scheduler that rejects a node for it."""


class PluginRejection(msgspec.Struct, frozen=True):
    """Why a plugin of kube-scheduler rejects a node, or a pod whatever the node."""

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool


class Scores(msgspec.Struct, frozen=True):
    """The scores of a node by plugin, 0 to 100, and their sum by kube-scheduler's default weights."""

    plugins: dict[str, int]
    total: int


class Expected(msgspec.Struct, frozen=True):
    """What kube-scheduler decides about one cluster (`lab/kubernetes/scheduling/evaluate.go`).

    Attributes:
        error: what it reports instead of a decision.
        pod: the rejection by all nodes at once.
        nodes: all rejections of each node.
        scores: the scores of the nodes that take the pod.
    """

    error: str = ""
    pod: PluginRejection | None = None
    nodes: dict[str, tuple[PluginRejection, ...]] = {}
    scores: dict[str, Scores] = {}


class Difference(msgspec.Struct, frozen=True):
    """Where our decision about a cluster differs: `expected` is kube-scheduler's, `actual` is ours."""

    seed: int
    node: str
    subject: str
    expected: str
    actual: str


def expected(clusters: Sequence[Manifest]) -> list[Expected]:
    """Return what kube-scheduler decides about each cluster."""
    lines = scheduling.evaluate(b"\n".join(map(msgspec.json.encode, clusters))).splitlines()
    return [msgspec.json.decode(line, type=Expected) for line in lines]


def loaded(cluster: Manifest) -> ClusterState:
    """Return the scheduler's state of a cluster."""
    made = state()
    for manifest in cluster["namespaces"]:
        made.set_namespace(msgspec.convert(manifest, Namespace))
    for manifest in cluster["nodes"]:
        made.set_node(msgspec.convert(manifest, Node))
    for manifest in cluster["pods"]:
        made.set_pod(msgspec.convert(manifest, Pod))
    return made


def differences(seed: int, cluster: Manifest, theirs: Expected) -> Iterator[Difference]:
    """Compare the nodes that take the pod, and for the others the plugin and whether it is resolvable."""
    pod: Pod = msgspec.convert(cluster["pod"], Pod)
    ours = finish(loaded(cluster).node_cache.filter(pod))
    for name, rejections in theirs.nodes.items():
        actual = ours.rejections.get(name)
        reasons = "; ".join(f"{each.plugin}: {', '.join(each.reasons)}" for each in rejections)
        difference = _difference(rejections, actual)
        if difference:
            yield Difference(seed, name, difference, reasons or "feasible", actual.coded_text if actual else "feasible")


def _difference(theirs: tuple[PluginRejection, ...], ours: NodeRejection | None) -> str:
    if ours is None:
        return "infeasible" if theirs else ""
    if not theirs:
        return "feasible"
    same = [each for each in theirs if each.plugin == PLUGINS[ours.code]]
    if not same:
        return "reason"
    if ours.resolvable not in {each.resolvable for each in same}:
        return "resolvable"
    return ""
