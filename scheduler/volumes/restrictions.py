"""Disks that a pod's spec names directly, and that other pods on the same node may not mount at the same time."""

from collections.abc import Iterable

import msgspec

from scheduler.pod_spec.volumes import Volume


class Disk(msgspec.Struct, frozen=True):
    """A disk that a pod mounts.

    Attributes:
        kind: the plugin.
        name: the identifier of the disk.
        monitors: the hosts of a Ceph cluster; two disks of the same name are the same one if these overlap.
        is_shareable: whether other pods may mount it if theirs is shareable, too.
    """

    kind: str
    name: str
    is_shareable: bool
    monitors: tuple[str, ...] = ()

    def conflicts_with(self, other: "Disk") -> bool:
        """Whether pods with these disks cannot run on one node."""
        if (self.kind, self.name) != (other.kind, other.name) or (self.is_shareable and other.is_shareable):
            return False
        return not self.monitors or not set(self.monitors).isdisjoint(other.monitors)


def disks(volumes: Iterable[Volume]) -> tuple[Disk, ...]:
    """Return the disks among the volumes of a pod."""
    found = []
    for volume in volumes:
        if volume.gce_persistent_disk is not None:
            found.append(Disk("gce", volume.gce_persistent_disk.pd_name, volume.gce_persistent_disk.read_only))
        if volume.aws_elastic_block_store is not None:
            found.append(Disk("ebs", volume.aws_elastic_block_store.volume_id, is_shareable=False))
        if volume.iscsi is not None:
            found.append(Disk("iscsi", volume.iscsi.iqn, volume.iscsi.read_only))
        if (rbd := volume.rbd) is not None and rbd.monitors:  # without a monitor it overlaps with no disk
            found.append(Disk("rbd", f"{rbd.pool}/{rbd.image}", rbd.read_only, rbd.monitors))
    return tuple(found)
