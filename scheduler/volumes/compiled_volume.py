"""A PersistentVolume with what scheduling reads of it often, compiled once."""

from typing import Self

import msgspec

from scheduler.volumes import in_tree, node_affinity, zones
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.node_affinity import VolumeAffinity
from scheduler.volumes.objects import PersistentVolume
from scheduler.volumes.sizes import size_of
from scheduler.volumes.zones import Zones


class CompiledVolume(msgspec.Struct, frozen=True, eq=False):
    """A PersistentVolume.

    Attributes:
        source: the object.
        name: its name.
        size: its capacity in bytes.
        affinity: the nodes that can use it; None if all can.
        zones: the zones and regions that it is in.
        attachment: what a CSI driver attaches for it; None if no driver does.
        claim: the claim that it is bound to or reserved for, or None.
    """

    source: PersistentVolume
    name: str
    size: int
    affinity: VolumeAffinity | None
    zones: tuple[Zones, ...]
    attachment: Attachment | None
    claim: ClaimKey | None

    @classmethod
    def of(cls, volume: PersistentVolume) -> Self:
        """Compile a PersistentVolume."""
        spec, meta, claim = volume.spec, volume.metadata, volume.spec.claim_ref
        if spec.csi is not None:
            attachment = Attachment(spec.csi.driver, spec.csi.volume_handle) if spec.csi.volume_handle else None
        else:
            attachment = in_tree.attachment(spec, meta.labels)
        return cls(
            source=volume,
            name=meta.name,
            size=size_of(spec.capacity),
            affinity=node_affinity.compiled(volume),
            zones=zones.of_labels(meta.labels),
            attachment=attachment,
            claim=ClaimKey(claim.namespace, claim.name) if claim is not None else None,
        )

    def is_reserved_for(self, claim: ClaimKey, uid: str) -> bool:
        """Whether it is bound to, or reserved for, this claim and no older one of the same name."""
        reference = self.source.spec.claim_ref
        return reference is not None and self.claim == claim and reference.uid in ("", uid)
