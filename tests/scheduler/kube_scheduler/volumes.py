"""Random volumes of pods: claims, generic ephemeral volumes, and disks that a pod names itself."""

from collections.abc import Sequence

from tests.scheduler.kube_scheduler import claims, drivers
from tests.scheduler.kube_scheduler.drivers import AZURE_DISKS
from tests.scheduler.kube_scheduler.selectors import Chance, Manifest

_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "iscsi", "rbd", "emptyDir")
"""The kinds of disks that the pods of one cluster name."""


def add_storage(chance: Chance, cluster: Manifest) -> None:
    """Add storage to a cluster, and volumes to its pods."""
    nodes = [node["metadata"]["name"] for node in cluster["nodes"]]
    volumes = claims.volumes(chance, nodes)
    free = [volume for volume in volumes if "claimRef" not in volume["spec"]]
    namespace = cluster["pod"]["metadata"]["namespace"]
    made = [
        claims.claim(chance, f"c{number}", namespace, free=free, nodes=nodes) for number in range(chance.randint(1, 5))
    ]
    names = [*(each["metadata"]["name"] for each in made)]
    disks = chance.choice(_DISKS)
    for pod in cluster["pods"]:
        if chance.maybe(0.6):
            _add_volumes(chance, pod, names, disks)
    _add_volumes(chance, cluster["pod"], [*names, "missing"] if chance.maybe(0.05) else names, disks)
    for pod in (*cluster["pods"], cluster["pod"]):
        made += _ephemeral_claims(chance, pod, free=free, nodes=nodes)
    cluster["persistentvolumes"] = volumes
    cluster["persistentvolumeclaims"] = made
    cluster["storageclasses"] = drivers.storage_classes(chance)
    cluster["csidrivers"] = drivers.csi_drivers(chance)
    cluster["csinodes"] = drivers.csi_nodes(chance, nodes)
    cluster["csistoragecapacities"] = drivers.capacities(chance)
    cluster["volumeattachments"] = drivers.attachments(chance, nodes, volumes)


def _add_volumes(chance: Chance, pod: Manifest, names: Sequence[str], disks: str) -> None:
    volumes: list[Manifest] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in chance.some(names, 2)
    ]
    if chance.maybe(0.15):
        resources = {"requests": {"storage": "1Gi"}}
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
        volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    if chance.maybe(0.3):
        volumes.append({"name": "disk", **_disk(chance, disks)})
    pod["spec"]["volumes"] = volumes


def _ephemeral_claims(chance: Chance, pod: Manifest, *, free: list[Manifest], nodes: Sequence[str]) -> list[Manifest]:
    """Return the claims that the controller made for a pod's ephemeral volumes; a few are another's, or missing."""
    made = []
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" in volume and chance.maybe(0.93):
            meta = pod["metadata"]
            claim = claims.claim(chance, f"{meta['name']}-{volume['name']}", meta["namespace"], free=free, nodes=nodes)
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            claim["metadata"]["ownerReferences"] = [owner] if chance.maybe(0.93) else []
            made.append(claim)
    return made


def _disk(chance: Chance, kind: str) -> Manifest:
    """Return the source of a volume that only one pod, or one node, may use unless it is read-only."""
    disk, read_only = chance.choice("de"), {"readOnly": chance.maybe(0.4)}
    sources: Manifest = {
        "gcePersistentDisk": {"pdName": disk, **read_only},
        "awsElasticBlockStore": {"volumeID": f"vol-{disk}", **read_only},
        "azureDisk": {"kind": "Managed", "diskName": disk, "diskURI": f"{AZURE_DISKS}/{disk}"},
        "iscsi": {"targetPortal": "10.0.0.1", "iqn": f"iqn.{disk}", "lun": 0, **read_only},
        "rbd": {
            "monitors": chance.sample(("m1", "m2"), chance.randint(1, 2)),
            "pool": chance.choice(("rbd", "fast")),
            "image": disk,
            **read_only,
        },
        "emptyDir": {},
    }
    return {kind: sources[kind]}
