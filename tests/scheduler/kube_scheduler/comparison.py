"""The same clusters evaluated by kube-scheduler and by our filters, and where the two differ."""

from collections.abc import Iterator

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import finish
from scheduler.objects import Namespace, NodeWithImages, Pod
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
from tests.scheduler.kube_scheduler.oracle import Expected, PluginRejection, text
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


class Difference(msgspec.Struct, frozen=True):
    """Where our decision about a cluster differs.

    Attributes:
        seed: that of the cluster.
        node: the node, or several; empty for a decision about the pod whatever the node.
        subject: what differs.
        expected: kube-scheduler's decision.
        actual: ours.
    """

    seed: int
    node: str
    subject: str
    expected: str
    actual: str


def loaded(cluster: Manifest) -> ClusterState:
    """Return the scheduler's state of a cluster."""
    made = state(scores_resources=True, stranded=0.0)  # kube-scheduler knows no stranded cards
    for manifest in cluster["namespaces"]:
        made.limits.set_namespace(msgspec.convert(manifest, Namespace))
    for manifest in cluster["nodes"]:
        made.set_node(msgspec.convert(manifest, NodeWithImages))
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


def node_differences(seed: int, cluster: Manifest, theirs: Expected, state: ClusterState) -> Iterator[Difference]:
    """Compare the nodes that take the pod, and for the others the plugin and whether it is resolvable."""
    pod: Pod = msgspec.convert(cluster["pod"], Pod)
    node_filter = state.node_filter
    volumes = node_filter.volumes_of(pod)
    problem = volumes.problem if volumes is not None else ""
    ours = finish(node_filter.filter(pod))
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
