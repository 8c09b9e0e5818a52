"""Volumes of drivers that were part of Kubernetes, and the CSI drivers that have replaced them (KEP-625).

Old objects still name the in-tree plugin. A node that lists the plugin in the annotation of its CSINode uses the CSI
driver instead, with an identifier and topology labels of that driver.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from allocation.label_selector import Expression
from scheduler.pod_spec.constraints import NodeSelector, Term
from scheduler.pod_spec.volumes import Volume
from scheduler.volumes.objects import PersistentVolume, VolumeSpec

_EBS: Final = "kubernetes.io/aws-ebs"
_GCE: Final = "kubernetes.io/gce-pd"
_AZURE_DISK: Final = "kubernetes.io/azure-disk"
_CINDER: Final = "kubernetes.io/cinder"
_PORTWORX: Final = "kubernetes.io/portworx-volume"

_REPLACED: Final[Mapping[str, str]] = {
    _EBS: "ebs.csi.aws.com",
    _GCE: "pd.csi.storage.gke.io",
    _AZURE_DISK: "disk.csi.azure.com",
    _CINDER: "cinder.csi.openstack.org",
    _PORTWORX: "pxd.portworx.com",
}
"""The CSI driver that has replaced each plugin."""
DRIVERS: Final = frozenset(_REPLACED.values())
"""The CSI drivers that have replaced plugins, whose volumes may be described in the specs of pods."""
_NOT_ATTACHED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""Plugins with a CSI driver whose volumes kube-scheduler does not count."""
_ZONE_KEYS: Final[Mapping[str, str]] = {
    _EBS: "topology.ebs.csi.aws.com/zone",
    _GCE: "topology.gke.io/zone",
    _CINDER: "topology.cinder.csi.openstack.org/zone",
}
"""The node label for zones of each driver that has one of its own."""

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_BETA_ZONE, _BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_UNSPECIFIED: Final = "UNSPECIFIED"


class Attachment(msgspec.Struct, frozen=True):
    """A volume that a CSI driver attaches to a node.

    Attributes:
        driver: the CSI driver.
        handle: the identifier of the volume, unique for the driver.
        plugin: the in-tree plugin that the node must have migrated for the driver to be used; empty if any node does.
    """

    driver: str
    handle: str
    plugin: str = ""


def attachment(source: Volume | VolumeSpec, labels: Mapping[str, str] = MappingProxyType({})) -> Attachment | None:
    """Return what a CSI driver attaches for a volume of an in-tree plugin, or None if it is of no migrated plugin.

    Args:
        source: the volume of a pod, or the spec of a PersistentVolume.
        labels: those of the PersistentVolume; the identifier of a disk of Google Compute Engine contains its zone.
    """
    if source.gce_persistent_disk is not None:
        return _attachment(_GCE, _gce_handle(source.gce_persistent_disk.pd_name, labels))
    if source.aws_elastic_block_store is not None:
        return _attachment(_EBS, _ebs_handle(source.aws_elastic_block_store.volume_id))
    if source.azure_disk is not None:
        is_managed = source.azure_disk.kind.lower() == "managed"
        return _attachment(_AZURE_DISK, source.azure_disk.disk_uri) if is_managed else None
    if source.cinder is not None:
        return _attachment(_CINDER, source.cinder.volume_id)
    if source.portworx_volume is not None:
        return _attachment(_PORTWORX, source.portworx_volume.volume_id)
    return None


def driver_of(provisioner: str) -> tuple[str, str]:
    """Return the CSI driver that attaches what a class's provisioner makes, and the plugin that it has replaced.

    The driver is empty if the volumes are not counted; the plugin is empty if every node can use the driver.
    """
    if provisioner in _NOT_ATTACHED:
        return "", ""
    driver = _REPLACED.get(provisioner)
    if driver is None:
        return provisioner, ""
    return driver, provisioner if provisioner == _PORTWORX else ""


def translated(volume: PersistentVolume) -> tuple[str, NodeSelector | None] | None:
    """Return the plugin of an in-tree volume and its node affinity on the nodes that have migrated the plugin.

    Return None if the node affinity is the same there. The driver's own label for zones replaces that of Kubernetes;
    without node affinity the zone comes from the volume's label.
    """
    found = attachment(volume.spec, volume.metadata.labels)
    plugin = next((name for name, driver in _REPLACED.items() if found is not None and driver == found.driver), "")
    key = _ZONE_KEYS.get(plugin)
    if key is None:
        return None
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    zone, region = _topology_labels(terms, volume.metadata.labels)
    if any(each.key == zone and each.values for term in terms for each in term.match_expressions):
        terms = _renamed(terms, {zone: key, _BETA_REGION: _REGION if region == _BETA_REGION else _BETA_REGION})
    elif zones := sorted({each.strip() for each in volume.metadata.labels.get(zone, "").split("__")} - {""}):
        own = Expression(key, "In", tuple(zones))
        terms = tuple(Term((*term.match_expressions, own), term.match_fields) for term in terms or (Term(),))
    return plugin, NodeSelector(terms) if terms else None


def _attachment(plugin: str, handle: str) -> Attachment | None:
    return Attachment(_REPLACED[plugin], handle, plugin if plugin == _PORTWORX else "") if handle else None


def _topology_labels(terms: Iterable[Term], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the labels for zone and region that a volume uses: those of today, or their old names."""
    keys = {each.key for term in terms for each in term.match_expressions}
    for present in (keys, labels.keys()):
        if _ZONE in present:
            return _ZONE, _REGION
        if _BETA_ZONE in present:
            return _BETA_ZONE, _BETA_REGION
    return _ZONE, _REGION


def _renamed(terms: Iterable[Term], names: Mapping[str, str]) -> tuple[Term, ...]:
    return tuple(
        Term(
            tuple(
                Expression(names.get(each.key, each.key), each.operator, each.values) for each in term.match_expressions
            ),
            term.match_fields,
        )
        for term in terms
    )


def _ebs_handle(volume_id: str) -> str:
    """Return the identifier in `vol-1`, `aws:///vol-1` or `aws://zone/vol-1`."""
    return volume_id.rstrip("/").rpartition("/")[2] if volume_id.startswith("aws://") else volume_id


def _gce_handle(disk: str, labels: Mapping[str, str]) -> str:
    zones = [zone for zone in (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split("__") if zone]
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{zones[0].rpartition('-')[0]}/disks/{disk}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] if zones else _UNSPECIFIED}/disks/{disk}"
