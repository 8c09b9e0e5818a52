"""Random PersistentVolumes and PersistentVolumeClaims in every state that scheduling distinguishes."""

from collections.abc import Sequence

from tests.scheduler.kube_scheduler import selectors
from tests.scheduler.kube_scheduler.drivers import AZURE_DISKS, CLASSES, COUNTING, PLAIN, SIZES
from tests.scheduler.kube_scheduler.selectors import BETA_ZONE, HOSTNAME, REGION, ZONE, ZONES, Chance, Manifest

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_DELETED = "2026-01-01T00:00:00Z"
_ZONE_LABELS = (ZONE, ZONE, BETA_ZONE)
_WAITING = ("local", "plain", "counting", "zoned", "disk")
_MODES = (["ReadWriteOnce"], ["ReadWriteMany"], ["ReadOnlyMany", "ReadWriteOnce"])


def volumes(chance: Chance, nodes: Sequence[str]) -> list[Manifest]:
    """Return PersistentVolumes that no claim has yet."""
    return [_volume(chance, f"v{number}", nodes) for number in range(chance.randint(0, 8))]


def claim(chance: Chance, name: str, namespace: str, *, free: list[Manifest], nodes: Sequence[str]) -> Manifest:
    """Return a claim; one that is bound takes its PersistentVolume from `free`."""
    spec: Manifest = {
        "accessModes": chance.choice((*_MODES[:2], ["ReadWriteOncePod"])) if chance.maybe(0.5) else ["ReadWriteOnce"],
        "resources": {"requests": {"storage": chance.choice(SIZES)}},
        "storageClassName": chance.choice((*CLASSES, *_WAITING * 3)),
    }
    annotations: dict[str, str] = {}
    meta: Manifest = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations}
    made = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
    if chance.maybe(0.02):
        meta["deletionTimestamp"] = _DELETED
    if chance.maybe(0.05):
        annotations[_BETA_CLASS] = chance.choice(CLASSES[:-1])
    if chance.maybe(0.1):
        spec["selector"] = selectors.label_selector(chance, {"disk": ("ssd", "hdd"), ZONE: ZONES}) or {}
    if chance.maybe(0.1):
        spec["volumeMode"] = "Block"
    if chance.maybe(0.05):
        spec["volumeAttributesClassName"] = "fast"
    state = chance.choice(("bound",) * 16 + ("unbound",) * 16 + ("half-bound", "reserved", "reserved", "missing"))
    if state == "unbound" and chance.maybe(0.15):
        annotations[_SELECTED_NODE] = chance.choice((*nodes, "gone"))
    if state == "missing":
        spec["volumeName"] = "gone"
        annotations[_BOUND] = "yes"
        made["status"]["phase"] = chance.choice(("Bound", "Lost"))
    if state in ("bound", "half-bound", "reserved") and free:
        volume = free.pop(chance.randrange(len(free)))
        reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        volume["spec"]["claimRef"] = reference if state == "reserved" else {**reference, "uid": meta["uid"]}
        if state != "reserved":
            spec["volumeName"] = volume["metadata"]["name"]
            volume["status"]["phase"] = "Bound"
        if state == "bound":
            annotations[_BOUND] = "yes"
            made["status"]["phase"] = "Bound"
    return made


def _volume(chance: Chance, name: str, nodes: Sequence[str]) -> Manifest:
    labels: dict[str, str] = {"disk": chance.choice(("ssd", "hdd"))}
    if chance.maybe(0.3):
        labels[chance.choice(_ZONE_LABELS)] = chance.choice((*ZONES, f"{ZONES[0]}__{ZONES[1]}", "elsewhere"))
    if chance.maybe(0.1):
        labels[REGION] = chance.choice(("r", "s"))
    spec: Manifest = {
        "capacity": {"storage": chance.choice(SIZES)},
        "accessModes": chance.choice((*_MODES, ["ReadWriteOnce", "ReadWriteOncePod"])),
        "storageClassName": chance.choice((*CLASSES, *_WAITING * 2)),
        **_source(chance, name),
    }
    if chance.maybe(0.1):
        spec["volumeMode"] = "Block"
    if chance.maybe(0.05):
        spec["volumeAttributesClassName"] = "fast"
    if chance.maybe(0.5):
        key, values = chance.choice(((HOSTNAME, nodes), (ZONE, ZONES), (ZONE, ZONES)))
        expression = {"key": key, "operator": "In", "values": chance.sample(values, min(len(values), 2))}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if chance.maybe(0.05):
        other = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "other", "uid": "uid-other"}
        spec["claimRef"] = other
    meta: Manifest = {"name": name, "labels": labels}
    if chance.maybe(0.04):
        meta["deletionTimestamp"] = _DELETED
    phase = chance.choice(("Available",) * 8 + ("Released", "Failed"))
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def _source(chance: Chance, name: str) -> Manifest:
    """Return the source of a volume; two volumes of a cluster may be the same disk."""
    disk = chance.choice((name, "shared"))
    return chance.choice(
        (
            {"csi": {"driver": PLAIN, "volumeHandle": disk}},
            {"csi": {"driver": PLAIN, "volumeHandle": disk}},
            {"csi": {"driver": COUNTING, "volumeHandle": disk}},
            {"gcePersistentDisk": {"pdName": disk}},
            {"awsElasticBlockStore": {"volumeID": f"aws://{ZONES[0]}/vol-{disk}"}},
            {"azureDisk": {"kind": "Managed", "diskName": disk, "diskURI": f"{AZURE_DISKS}/{disk}"}},
            {"local": {"path": "/data"}},
            {"hostPath": {"path": "/data"}},
        )
    )
