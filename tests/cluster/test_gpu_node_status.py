"""GpuNodeStatus in Python and its CRD: the API server drops fields that the schema does not have, without a word."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allocation.delivery import NodeDelivery, Toolkit
from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from allocation.mig import InstanceRequest, Slices
from allocation.topology.layout import NUMA_UNKNOWN, PeerLink
from cluster.gpu_node_status import Device, GpuNodeStatus, Spec, Status
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceRequestStatus, InstanceStatus, ProfileStatus

CRD = Path(__file__).parents[2] / "manifests" / "base" / "crds" / "gpunodestatuses.yaml"


def _properties(*path: str) -> set[str]:
    """Return the properties of the object, or of the list's items, at `path` in the schema."""
    place: Any = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        place = place["properties"][name]
        place = place.get("items", place)
    return set(place["properties"])


@pytest.mark.parametrize(
    ("path", "struct"),
    [
        ("spec", Spec),
        ("spec.migInstances", InstanceRequest),
        ("spec.migInstances.placement", Slices),
        ("status", Status),
        ("status.delivery", NodeDelivery),
        ("status.delivery.toolkit", Toolkit),
        ("status.migInstances", InstanceRequestStatus),
        ("status.fabric", Fabric),
        ("status.fabric.hcas", Hca),
        ("status.fabric.hcas.ports", HcaPort),
        ("status.fabric.cuFile", CuFile),
        ("status.devices", Device),
        ("status.devices.links", PeerLink),
        ("status.devices.instance", InstanceStatus),
        ("status.devices.migProfiles", ProfileStatus),
    ],
)
def test_schema_has_the_fields_of_the_struct(path: str, struct: type[msgspec.Struct]) -> None:
    """No more and no less; `inUseBy` belongs to other clients."""
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert _properties(*path.split(".")) - {"inUseBy"} == fields


def test_fabric_and_links_reach_the_inventory() -> None:
    """What an agent reports is what the scheduler reads; what is missing is unknown."""
    fabric = Fabric(
        (Hca("mlx5_0", "MT4129", (HcaPort(1, "Active", 400),), gpu_direct=True, numa=1),), CuFile(enabled=True)
    )
    devices = [
        Device(0, "GPU-a", 1, numa=0, island="i", bandwidth_gbps=50, links=(PeerLink(1, 50),), pcie_groups=(0, 0, 0)),
        Device(1, "GPU-b", 1, island="i", bandwidth_gbps=50, links=(PeerLink(0, 50),)),
    ]
    written = msgspec.json.encode(GpuNodeStatus(ObjectMeta("n1", "u1"), Status(devices, 2, fabric=fabric)))
    inventory = msgspec.json.decode(written, type=GpuNodeStatus).inventory()
    assert inventory.fabric == fabric
    assert [card.numa for card in inventory.cards] == [0, NUMA_UNKNOWN]
    assert inventory.layout.bandwidth == ((50, 50), (50, 50))


def test_report_without_fabric_has_none() -> None:
    """An agent of an older version reports neither adapters nor links."""
    inventory = msgspec.json.decode(
        b'{"metadata": {"name": "n1", "uid": "u"}, "spec": {"nodeName": "n1"}, "status": {"devices": []}}',
        type=GpuNodeStatus,
    ).inventory()
    assert inventory.fabric == Fabric()
