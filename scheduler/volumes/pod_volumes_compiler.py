"""Compiles what the volumes of a pod require of nodes."""

from collections import Counter

import msgspec

from scheduler.objects import Pod
from scheduler.volumes import in_tree, pod_claims, restrictions
from scheduler.volumes.assumptions import Assumptions
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.matching import ClaimMatcher, VolumeIndex, by_size
from scheduler.volumes.node_volumes import NodeVolumes
from scheduler.volumes.objects import SELECTED_NODE, Claim
from scheduler.volumes.planned_pod import PlannedPod
from scheduler.volumes.pod_claims import PodClaim, PodClaims
from scheduler.volumes.pod_volumes import PodVolumes, UnboundClaims, VolumeRequirements
from scheduler.volumes.provisioning import Provisioning
from scheduler.volumes.sizes import size_of
from scheduler.volumes.storage_objects import StorageObjects

_ONE_POD = "ReadWriteOncePod"


class PodVolumesCompiler:
    """Compiles the volumes of pods by the storage objects, the volumes in use and the assumptions of now."""

    def __init__(
        self, *, objects: StorageObjects, index: VolumeIndex, assumptions: Assumptions, in_use: NodeVolumes
    ) -> None:
        self._objects = objects
        self._index = index
        self._assumptions = assumptions
        self._in_use = in_use

    def compile(self, pod: Pod) -> PodVolumes:
        """Return what the volumes of `pod` require."""
        planned = pod.claims if isinstance(pod, PlannedPod) else {}
        claims = pod_claims.read(
            pod, self._objects.claims.get, planned=planned.get, is_delayed=self._objects.is_delayed
        )
        requirements = self._requirements(pod, claims)
        unbound = self._unbound(claims.unbound) if claims.unbound else None
        volumes = (self._objects.volumes.get(each.claim.spec.volume_name) for each in claims.bound)
        affinities = (each.affinity for each in volumes if each is not None)
        labels = tuple(each.labels for each in affinities if each is not None and each.labels is not None)
        return PodVolumes(requirements, unbound, labels, claims.problem)

    def _requirements(self, pod: Pod, claims: PodClaims) -> VolumeRequirements:
        objects = self._objects
        bound = [(each, objects.volumes.get(each.claim.spec.volume_name)) for each in claims.bound]
        found = [(each, volume) for each, volume in bound if volume is not None]
        affinities = {each.affinity.key: each.affinity for _, each in found if each.affinity is not None}
        zones = sorted({zone for claim, each in found if not claim.is_ephemeral for zone in each.zones}, key=str)
        wanted, unused = self._attachments(pod, claims)
        disks = restrictions.disks(pod.spec.volumes)
        is_taken = any(
            _ONE_POD in each.claim.spec.access_modes and self._in_use.nodes_of(each.key)
            for each in (*claims.bound, *claims.unbound)
            if not each.is_ephemeral
        )
        lacks_volume = len(found) < len(bound)
        key = (sorted(affinities), zones, wanted, sorted(unused.items()), disks, is_taken, lacks_volume)
        return VolumeRequirements(
            key=msgspec.msgpack.encode(key),
            affinities=tuple(affinities.values()),
            zones=tuple(zones),
            wanted=wanted,
            unused=unused,
            disks=disks,
            is_claim_taken=is_taken,
            lacks_volume=lacks_volume,
        )

    def _attachments(self, pod: Pod, claims: PodClaims) -> tuple[tuple[Attachment, ...], dict[str, int]]:
        """Return what drivers with limits have to attach: what may be attached already, and counts of the rest.

        A volume that no pod uses is counted without its name, so that pods of a StatefulSet have equal requirements.
        """
        limited = self._objects.limited_drivers
        if not limited:
            return (), {}
        wanted = {each for each in map(in_tree.attachment, pod.spec.volumes) if each is not None}
        unused: set[Attachment] = set()
        for claim in (*claims.bound, *claims.unbound):
            attachment = self._objects.attachment(claim.key, claim.claim)
            if attachment is not None:
                is_new = not self._in_use.nodes_of(claim.key) and not self._may_be_in_use_otherwise(attachment)
                (unused if is_new else wanted).add(attachment)
        counts = Counter(each.driver for each in unused if each.driver in limited)
        return tuple(sorted((each for each in wanted if each.driver in limited), key=str)), dict(counts)

    def _may_be_in_use_otherwise(self, attachment: Attachment) -> bool:
        """Whether pods may use the volume by another claim or in their spec, or a node may not have its driver."""
        is_in_tree = attachment.driver in in_tree.DRIVERS or bool(attachment.plugin)
        return is_in_tree or self._objects.is_shared(attachment)

    def _unbound(self, claims: tuple[PodClaim, ...]) -> UnboundClaims:
        selected: set[str] = set()
        started: list[ClaimKey] = []
        matchers: list[ClaimMatcher] = []
        provisioning: dict[ClaimKey, Provisioning] = {}
        for each in claims:
            node = each.claim.metadata.annotations.get(SELECTED_NODE, self._assumptions.node_of(each.key))
            if node:
                selected.add(node)
                started.append(each.key)
            else:
                matchers.append(self._matcher(each.key, each.claim))
            storage_class = self._objects.classes[each.claim.storage_class]
            size = size_of(each.claim.spec.resources.requests)
            provisioning[each.key] = Provisioning(storage_class, size, self._objects.capacities(storage_class))
        assumed = frozenset(each.key for each in claims if self._assumptions.volume_of(each.key))
        return UnboundClaims(frozenset(selected), tuple(started), assumed, tuple(by_size(matchers)), provisioning)

    def _matcher(self, key: ClaimKey, claim: Claim) -> ClaimMatcher:
        reserved = [each for each in self._index.reserved(key) if each.is_reserved_for(key, claim.metadata.uid)]
        assumed = self._objects.volumes.get(self._assumptions.volume_of(key))
        if assumed is not None and assumed not in reserved:
            reserved.append(assumed)
        return ClaimMatcher(key, claim, self._index, reserved=reserved)
