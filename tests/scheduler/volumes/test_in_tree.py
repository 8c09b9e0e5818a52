"""In-tree volumes are counted and placed as the CSI drivers that have replaced their plugins do it."""

from typing import Any

import msgspec
import pytest

from scheduler.pod_spec.volumes import Volume
from scheduler.volumes import in_tree, node_affinity
from scheduler.volumes.in_tree import Attachment
from tests.scheduler.support.storage import ZONE, volume

PORTWORX = "kubernetes.io/portworx-volume"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, Attachment("ebs.csi.aws.com", "vol-1")),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}, Attachment("ebs.csi.aws.com", "vol-1")),
        (
            {"gcePersistentDisk": {"pdName": "disk"}},
            Attachment("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        ),
        ({"azureDisk": {"diskURI": "uri", "kind": "Managed"}}, Attachment("disk.csi.azure.com", "uri")),
        ({"azureDisk": {"diskURI": "uri"}}, None),
        ({"cinder": {"volumeID": "id"}}, Attachment("cinder.csi.openstack.org", "id")),
        ({"portworxVolume": {"volumeID": "id"}}, Attachment("pxd.portworx.com", "id", PORTWORX)),
        ({"iscsi": {"iqn": "x"}}, None),
    ],
)
def test_a_volume_in_a_pod_is_one_of_a_csi_driver(source: dict[str, Any], expected: Attachment | None) -> None:
    """The handle is the one that the driver would see; a PersistentVolume has the same."""
    assert in_tree.attachment(msgspec.convert({"name": "v", **source}, Volume)) == expected
    if "iscsi" not in source:
        assert in_tree.attachment(volume("pv", **source).spec) == expected


@pytest.mark.parametrize(
    ("zones", "place"),
    [("us-east1-b", "zones/us-east1-b"), ("us-east1-b__us-east1-c", "regions/us-east1"), ("", "zones/UNSPECIFIED")],
)
def test_a_google_disk_is_named_with_its_zone_or_region(zones: str, place: str) -> None:
    """A disk in several zones belongs to their region."""
    found = volume("pv", labels={ZONE: zones}, gcePersistentDisk={"pdName": "disk"})
    attached = in_tree.attachment(found.spec, found.metadata.labels)
    assert attached is not None
    assert attached.handle == f"projects/UNSPECIFIED/{place}/disks/disk"


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        ("csi.example.com", ("csi.example.com", "")),
        ("kubernetes.io/aws-ebs", ("ebs.csi.aws.com", "")),
        (PORTWORX, ("pxd.portworx.com", PORTWORX)),
        ("kubernetes.io/azure-file", ("", "")),
    ],
)
def test_the_driver_of_a_class_follows_from_its_provisioner(provisioner: str, driver: tuple[str, str]) -> None:
    """What an in-tree provisioner makes is attached by the driver that has replaced it."""
    assert in_tree.driver_of(provisioner) == driver


EBS_ZONE, PLUGIN = "topology.ebs.csi.aws.com/zone", "kubernetes.io/aws-ebs"


@pytest.mark.parametrize("fields", [{"zone": "a"}, {"labels": {ZONE: "a__b"}}])
def test_a_migrated_node_is_known_by_the_zone_label_of_the_driver(fields: dict[str, Any]) -> None:
    """The zone of the node affinity, or that of the volume's label, is looked for under the driver's own key."""
    affinity = node_affinity.compiled(volume("pv", awsElasticBlockStore={"volumeID": "vol-1"}, **fields))
    assert affinity is not None
    assert affinity.matches({EBS_ZONE: "a"}, {PLUGIN})
    assert not affinity.matches({EBS_ZONE: "c"}, {PLUGIN})
    assert not affinity.matches({ZONE: "a"}, {PLUGIN})
    assert affinity.matches({ZONE: "a"}, ())
