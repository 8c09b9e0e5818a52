"""Random StorageClasses and what CSI drivers report: their capacity, their limits, and what they have attached."""

from collections.abc import Sequence

from tests.scheduler.kube_scheduler.selectors import ZONE, ZONES, Chance, Manifest

PLAIN, COUNTING = "plain.example", "counting.example"
"""A CSI driver that does not report its capacity, and one that does."""
IN_TREE = {
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
}
"""The CSI drivers that replace drivers of Kubernetes."""
AZURE_DISKS = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/disks"
CLASSES = ("local", "plain", "counting", "zoned", "immediate", "disk", "missing", "")
SIZES = ("500Mi", "1Gi", "2Gi", "5G", "8Gi", "10Gi")


def storage_classes(chance: Chance) -> list[Manifest]:
    """Return the StorageClasses of a cluster, one of which may be absent."""
    topology = {"key": ZONE, "values": chance.sample(ZONES, 2)}
    classes = [
        _storage_class("local", "kubernetes.io/no-provisioner"),
        _storage_class("plain", PLAIN),
        _storage_class("counting", COUNTING),
        _storage_class("zoned", PLAIN, allowedTopologies=[{"matchLabelExpressions": [topology]}]),
        _storage_class("immediate", PLAIN, volumeBindingMode="Immediate"),
        _storage_class("disk", chance.choice(list(IN_TREE))),
    ]
    return [each for each in classes if chance.maybe(0.95)]


def csi_drivers(chance: Chance) -> list[Manifest]:
    """Return the CSIDrivers of a cluster."""
    drivers = [
        {"metadata": {"name": PLAIN}, "spec": {}},
        {"metadata": {"name": COUNTING}, "spec": {"storageCapacity": chance.maybe(0.9)}},
    ]
    return [each for each in drivers if chance.maybe(0.95)]


def csi_nodes(chance: Chance, nodes: Sequence[str]) -> list[Manifest]:
    """Return the CSINodes of most nodes."""
    return [_csi_node(chance, node) for node in nodes if chance.maybe(0.9)]


def capacities(chance: Chance) -> list[Manifest]:
    """Return CSIStorageCapacities, most of which are about one zone."""
    return [_capacity(chance, f"capacity-{number}") for number in range(chance.randint(0, 4))]


def attachments(chance: Chance, nodes: Sequence[str], volumes: Sequence[Manifest]) -> list[Manifest]:
    """Return VolumeAttachments, some for volumes that no pod of the node uses any more."""
    return [
        {
            "metadata": {"name": f"attachment-{number}"},
            "spec": {
                "attacher": chance.choice((PLAIN, COUNTING, *IN_TREE.values())),
                "nodeName": chance.choice(nodes),
                "source": {"persistentVolumeName": chance.choice([each["metadata"]["name"] for each in volumes])},
            },
        }
        for number in range(chance.randint(0, 4) if volumes else 0)
    ]


def _storage_class(name: str, provisioner: str, **fields: object) -> Manifest:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    return {"metadata": {"name": name}, "provisioner": provisioner, **mode, **fields}


def _csi_node(chance: Chance, node: str) -> Manifest:
    drivers = []
    for name in (PLAIN, COUNTING, *IN_TREE.values()):
        if chance.maybe(0.7):
            driver: Manifest = {"name": name, "nodeID": node, "topologyKeys": None}
            if chance.maybe(0.6):
                driver["allocatable"] = {"count": chance.choice((1, 1, 2, 3))}
            drivers.append(driver)
    meta: Manifest = {"name": node}
    if chance.maybe(0.8):
        migrated = ",".join(chance.sample(list(IN_TREE), chance.randint(1, 3)))
        meta["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return {"metadata": meta, "spec": {"drivers": drivers}}


def _capacity(chance: Chance, name: str) -> Manifest:
    capacity: Manifest = {
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": chance.choice(("counting", "counting", "plain")),
    }
    if chance.maybe(0.95):
        capacity["nodeTopology"] = {"matchLabels": {ZONE: chance.choice(ZONES)}} if chance.maybe(0.8) else {}
    if chance.maybe(0.9):
        capacity["capacity"] = chance.choice(SIZES)
    if chance.maybe(0.3):
        capacity["maximumVolumeSize"] = chance.choice(SIZES)
    return capacity
