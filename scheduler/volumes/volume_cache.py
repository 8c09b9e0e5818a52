"""What the volumes of pods require of nodes, by all storage objects, the pods on nodes and the pods being bound."""

from collections.abc import Callable

from allocation.reasons import NodeReason, NodeRejection
from scheduler.objects import Node, Pod
from scheduler.volumes import limits, zones
from scheduler.volumes.assumptions import Assumptions
from scheduler.volumes.bindings import NO_BINDINGS, ClaimKey, VolumeBindings
from scheduler.volumes.matching import VolumeIndex
from scheduler.volumes.node_volumes import Attached, NodeVolumes
from scheduler.volumes.objects import (
    Claim,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from scheduler.volumes.pod_volumes import PodVolumes, UnboundClaims, VolumeRequirements
from scheduler.volumes.pod_volumes_compiler import PodVolumesCompiler
from scheduler.volumes.storage_objects import StorageObjects

_DISK_TAKEN = NodeRejection(NodeReason.VolumeInUse, "node(s) had no available disk")
_CLAIM_TAKEN = NodeRejection(
    NodeReason.VolumeInUse,
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)
_TOO_MANY = NodeRejection(NodeReason.VolumeLimitExceeded, "node(s) exceed max volume count")
_OTHER_NODE = NodeRejection(
    NodeReason.VolumeNodeAffinityConflict, "node(s) didn't match PersistentVolume's node affinity", resolvable=False
)
_NO_VOLUME = NodeRejection(
    NodeReason.VolumeNotFound,
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    resolvable=False,
)
_OTHER_ZONE = NodeRejection(NodeReason.VolumeZoneMismatch, "node(s) had no available volume zone", resolvable=False)


class VolumeCache:
    """The storage objects, the volumes in use, and those that are assumed for pods."""

    def __init__(
        self,
        *,
        on_change: Callable[[str], None] = lambda _node: None,
        on_release: Callable[[str], None] = lambda _uid: None,
    ) -> None:
        """Begin without objects.

        `on_change` is called with each node that may take other pods than before, `on_release` with each pod for which
        something was assumed that is given back, so that another one may get it.
        """
        self.objects = StorageObjects()
        self._on_change = on_change
        self._on_release = on_release
        self._index = VolumeIndex()
        self._assumptions = Assumptions()
        self._in_use = NodeVolumes()
        self._attached: dict[str, Attached] = {}
        self._compiler = PodVolumesCompiler(
            objects=self.objects, index=self._index, assumptions=self._assumptions, in_use=self._in_use
        )
        self._last: tuple[Pod, PodVolumes] | None = None

    # ---- objects ---------------------------------------------------------------------------------------------------

    def set_claim(self, claim: Claim) -> None:
        """Set the state of a claim; if it has a volume, nothing is assumed about it any more."""
        self._change_claim(_key(claim), claim)

    def drop_claim(self, claim: Claim) -> None:
        """Forget a claim."""
        self._change_claim(_key(claim), None)

    def set_volume(self, volume: PersistentVolume) -> None:
        """Set the state of a PersistentVolume; if it has a claim, nothing is assumed about it any more."""
        self._change_volume(volume.metadata.name, volume)

    def drop_volume(self, volume: PersistentVolume) -> None:
        """Forget a PersistentVolume."""
        self._change_volume(volume.metadata.name, None)

    def set_class(self, storage_class: StorageClass) -> None:
        """Set the state of a StorageClass."""
        self.objects.classes[storage_class.metadata.name] = storage_class
        self._forget_attached()

    def drop_class(self, storage_class: StorageClass) -> None:
        """Forget a StorageClass."""
        self.objects.classes.pop(storage_class.metadata.name, None)
        self._forget_attached()

    def set_csi_node(self, csi_node: CsiNode) -> None:
        """Set the state of a CSINode."""
        self.objects.set_csi_node(csi_node.metadata.name, csi_node)
        self._change_node(csi_node.metadata.name)

    def drop_csi_node(self, csi_node: CsiNode) -> None:
        """Forget a CSINode."""
        self.objects.set_csi_node(csi_node.metadata.name, None)
        self._change_node(csi_node.metadata.name)

    def set_driver(self, driver: CsiDriver) -> None:
        """Set the state of a CSIDriver."""
        self.objects.set_driver(driver.metadata.name, driver)
        self._last = None

    def drop_driver(self, driver: CsiDriver) -> None:
        """Forget a CSIDriver."""
        self.objects.set_driver(driver.metadata.name, None)
        self._last = None

    def set_capacity(self, capacity: StorageCapacity) -> None:
        """Set the state of a CSIStorageCapacity."""
        self.objects.set_capacity(capacity)
        self._last = None

    def drop_capacity(self, capacity: StorageCapacity) -> None:
        """Forget a CSIStorageCapacity."""
        self.objects.drop_capacity(capacity)
        self._last = None

    def set_attachment(self, attachment: VolumeAttachment) -> None:
        """Set the state of a VolumeAttachment; one that names no PersistentVolume is not counted."""
        spec = attachment.spec
        volume = spec.source.persistent_volume_name or ""
        self._in_use.set_attachment(attachment.metadata.name, spec.node_name, spec.attacher, volume)
        self._change_node(spec.node_name)

    def drop_attachment(self, attachment: VolumeAttachment) -> None:
        """Forget a VolumeAttachment."""
        self._in_use.drop_attachment(attachment.metadata.name, attachment.spec.node_name)
        self._change_node(attachment.spec.node_name)

    # ---- pods ------------------------------------------------------------------------------------------------------

    def add_pod(self, pod: Pod, node: str, bindings: VolumeBindings = NO_BINDINGS) -> None:
        """Count the volumes of a pod on `node`, and assume `bindings` for its unbound claims."""
        self._in_use.remove_pod(pod.uid)
        self._in_use.add_pod(pod, node)
        if bindings:
            self._assumptions.add(pod.uid, node, bindings)
            for match in bindings.matches:
                self._reindex(match.volume)
        self._change_node(node)

    def remove_pod(self, uid: str, node: str) -> None:
        """Stop counting the volumes of a pod on `node`, and give back what is assumed for it."""
        if self._in_use.remove_pod(uid):
            self._change_node(node)
            if self._assumptions.is_waiting(uid):
                for volume in self._assumptions.remove(uid):
                    self._reindex(volume)
                self._on_release(uid)

    def of_pod(self, pod: Pod) -> PodVolumes:
        """Return what the volumes of `pod` require, compiled once for one state of the cluster."""
        if self._last is None or self._last[0] is not pod:
            self._last = (pod, self._compiler.compile(pod))
        return self._last[1]

    def rejection(
        self, needs: VolumeRequirements, node: Node, unbound: UnboundClaims | None = None
    ) -> NodeRejection | None:
        """Return why a node does not take a pod with these volumes, or None where it does."""
        name, labels = node.metadata.name, node.metadata.labels
        if needs.disks and any(
            mine.conflicts_with(each) for each in self._in_use.disks_on(name) for mine in needs.disks
        ):
            return _DISK_TAKEN
        if needs.is_claim_taken:
            return _CLAIM_TAKEN
        facts = self.objects.csi_facts(name)
        new = len(needs.wanted) + sum(needs.unused.values())
        if new and facts.limits and new + self._in_use.most_attached(name) > min(facts.limits.values()):
            attached = self._attached_to(name)
            if limits.is_exceeded(
                needs.wanted,
                unused=needs.unused,
                limits=facts.limits,
                in_use=attached.in_use,
                attached=attached.counts,
                migrated=facts.migrated,
            ):
                return _TOO_MANY
        if not all(each.matches(labels, facts.migrated) for each in needs.affinities):
            return _OTHER_NODE
        if unbound is not None:
            found = unbound.find(node)
            if isinstance(found, NodeRejection):
                return found
        if needs.lacks_volume:
            return _NO_VOLUME
        return None if zones.match(needs.zones, labels) else _OTHER_ZONE

    # ---- changes ---------------------------------------------------------------------------------------------------

    def _change_claim(self, key: ClaimKey, claim: Claim | None) -> None:
        self.objects.set_claim(key, claim)
        if claim is None or claim.spec.volume_name:
            for volume in self._assumptions.end(key):
                self._reindex(volume)
        self._change_nodes_of(key)

    def _change_volume(self, name: str, volume: PersistentVolume | None) -> None:
        old = self.objects.volumes.get(name)
        if old is not None:
            self._index.remove(old)
        self.objects.set_volume(name, volume)
        assumed_for = self._assumptions.claim_of(name)
        if assumed_for is not None and (volume is None or volume.spec.claim_ref is not None):
            for _ in self._assumptions.end(assumed_for):
                pass
        self._reindex(name)
        for claim in self.objects.claims_of(name):
            self._change_nodes_of(claim)

    def _reindex(self, name: str) -> None:
        """Offer a volume to claims unless it is assumed for one."""
        volume = self.objects.volumes.get(name)
        if volume is not None:
            self._index.remove(volume)
            if self._assumptions.claim_of(name) is None:
                self._index.add(volume)
        self._last = None

    def _change_nodes_of(self, claim: ClaimKey) -> None:
        self._last = None
        for node in self._in_use.nodes_of(claim):
            self._change_node(node)

    def _change_node(self, node: str) -> None:
        self._last = None
        self._attached.pop(node, None)
        self._on_change(node)

    def _forget_attached(self) -> None:
        self._last = None
        for node in tuple(self._attached):
            self._change_node(node)

    def _attached_to(self, node: str) -> Attached:
        attached = self._attached.get(node)
        if attached is None:
            attached = self._attached[node] = self._in_use.attached(
                node,
                of_claim=lambda key: self.objects.attachment(key, self.objects.claims.get(key)),
                of_volume=self.objects.csi_handle,
                migrated=self.objects.csi_facts(node).migrated,
            )
        return attached


def _key(claim: Claim) -> ClaimKey:
    return ClaimKey(claim.metadata.namespace, claim.metadata.name)
