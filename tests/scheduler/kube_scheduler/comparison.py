"""The same clusters evaluated by kube-scheduler and by our filters, and where the two differ."""

from collections.abc import Iterator, Sequence

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import finish
from lab import scheduling
from scheduler.objects import Namespace, Node, Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from tests.scheduler.kube_scheduler.selectors import Manifest
from tests.scheduler.support.builders import state

PLUGINS = {
    NodeReason.NodeUnschedulable: "NodeUnschedulable",
    NodeReason.NodeTainted: "TaintToleration",
    NodeReason.NodeSelectorMismatch: "NodeAffinity",
    NodeReason.NodePortTaken: "NodePorts",
    NodeReason.NodeInsufficientResource: "NodeResourcesFit",
    NodeReason.NodeTooManyPods: "NodeResourcesFit",
    NodeReason.VolumeInUse: "VolumeRestrictions",
    NodeReason.VolumeLimitExceeded: "NodeVolumeLimits",
    NodeReason.VolumeNodeAffinityConflict: "VolumeBinding",
    NodeReason.VolumeNotAvailable: "VolumeBinding",
    NodeReason.VolumeNotFound: "VolumeBinding",
    NodeReason.StorageCapacityInsufficient: "VolumeBinding",
    NodeReason.VolumeZoneMismatch: "VolumeZone",
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
    storage = made.storage
    for kind, type_, add in (
        ("persistentvolumeclaims", Claim, storage.set_claim),
        ("persistentvolumes", PersistentVolume, storage.set_volume),
        ("storageclasses", StorageClass, storage.set_class),
        ("csinodes", CsiNode, storage.set_csi_node),
        ("csidrivers", CsiDriver, storage.set_driver),
        ("csistoragecapacities", StorageCapacity, storage.set_capacity),
        ("volumeattachments", VolumeAttachment, storage.set_attachment),
    ):
        for manifest in cluster.get(kind, ()):
            add(msgspec.convert(manifest, type_))
    for manifest in cluster["pods"]:
        made.set_pod(msgspec.convert(manifest, Pod))
    return made


def differences(seed: int, cluster: Manifest, theirs: Expected) -> Iterator[Difference]:
    """Compare the nodes that take the pod, and for the others the plugin and whether it is resolvable."""
    pod: Pod = msgspec.convert(cluster["pod"], Pod)
    node_cache = loaded(cluster).node_cache
    volumes = node_cache.volumes_of(pod)
    problem = volumes.problem if volumes is not None else ""
    ours = finish(node_cache.filter(pod))
    whole = theirs.error or (theirs.pod and text(theirs.pod)) or ""
    if problem or whole:
        fitting = [] if problem else ours.fitting
        if bool(problem) != bool(whole) and not (whole and not fitting):
            yield Difference(seed, "", "pod", whole or "none", problem or ", ".join(fitting))
        return
    for name, rejections in theirs.nodes.items():
        actual = ours.rejections.get(name)
        difference = _difference(rejections, actual)
        if difference:
            reasons = "; ".join(map(text, rejections))
            yield Difference(seed, name, difference, reasons or "feasible", actual.coded_text if actual else "feasible")


def text(rejection: PluginRejection) -> str:
    """Return a rejection in one line."""
    return f"{rejection.plugin}: {', '.join(rejection.reasons)}"


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
