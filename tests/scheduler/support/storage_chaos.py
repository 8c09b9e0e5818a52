"""Random storage objects, and pods that use them, out of a few names so that they meet."""

import random
from typing import Any

from tests.scheduler.support.storage import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounts,
    storage_class,
    volume,
)

CLASSES = (
    storage_class("local"),
    storage_class("fast", provisioner="csi.example.com"),
    storage_class("now", provisioner="csi.example.com", is_delayed=False),
    storage_class("old", provisioner="kubernetes.io/aws-ebs"),
)
SIZES = ("1Gi", "5Gi", "10Gi")
NUMBERS = range(5)
NODES = [f"n{number}" for number in range(5)]


def storage_change(chance: random.Random, node: str) -> tuple[str, Any]:
    """Return the name of a handler of `Storage` and an object for it."""
    number = chance.choice(NUMBERS)
    act = "drop" if chance.random() < 0.1 else "set"
    match chance.randint(0, 9):
        case 0 | 1 | 2:
            return f"{act}_claim", some_claim(chance, number)
        case 3 | 4:
            return f"{act}_volume", some_volume(chance, number)
        case 5 | 6:
            limits = {"csi_example_com": chance.randint(0, 3), "ebs_csi_aws_com": 1} if chance.random() < 0.8 else {}
            made = csi_node(node, migrated=chance.choice(("", "kubernetes.io/aws-ebs")), **limits)
            return f"{act}_csi_node", made
        case 7:
            attached = attachment(f"attached-{number}", node=NODES[number], volume=f"pv{chance.choice(NUMBERS)}")
            return chance.choice(("set_attachment", "drop_attachment")), attached
        case 8:
            labels = {"zone": chance.choice("ab")} if chance.random() < 0.8 else {}
            free = capacity(f"free-{number}", size=chance.choice((*SIZES, None)), labels=labels)
            return chance.choice(("set_capacity", "drop_capacity")), free
        case _:
            return chance.choice(("set_driver", "drop_driver")), csi_driver()


def some_claim(chance: random.Random, number: int) -> Any:
    """Return a claim: bound, or of any class."""
    bound = f"pv{number}" if chance.random() < 0.5 else ""
    return claim(
        f"c{number}",
        volume=bound,
        size=chance.choice(SIZES),
        storage_class=chance.choice(("local", "local", "local", "fast", "fast", "fast", "fast", "old", "old", "now")),
        modes=(chance.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")),),
        selected=chance.choice(NODES) if chance.random() < 0.1 else "",
    )


def some_volume(chance: random.Random, number: int) -> Any:
    """Return a PersistentVolume: local or not, of some driver, available or reserved for a claim."""
    more: dict[str, Any] = {}
    match chance.randint(0, 3):
        case 0:
            more["node"] = chance.choice(NODES)
        case 1:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [chance.choice("ab")]}]}
            more["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        case 2:
            term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [chance.choice("ab")]}]}
            more["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    match chance.randint(0, 2):
        case 0:
            more["handle"] = f"handle-{chance.choice(NUMBERS)}"
        case 1:
            more["awsElasticBlockStore"] = {"volumeID": f"vol-{chance.choice(NUMBERS)}"}
    reserved = chance.random() < 0.4
    return volume(
        f"pv{number}",
        size=chance.choice(SIZES),
        storage_class=chance.choice(("local", "fast")),
        modes=("ReadWriteOnce", "ReadWriteOncePod") if chance.random() < 0.8 else ("ReadOnlyMany",),
        claim=f"c{number}" if reserved else "",
        claim_uid=f"uid-c{number}" if reserved and chance.random() < 0.5 else "",
        labels={"topology.kubernetes.io/zone": "a"} if chance.random() < 0.1 else {},
        **more,
    )


def some_volumes(chance: random.Random) -> list[dict[str, Any]]:
    """Return the `spec.volumes` of a pod."""
    if chance.random() < 0.1:
        disk = {"pdName": "disk", "readOnly": chance.random() < 0.5}
        return [{"name": "disk", "gcePersistentDisk": disk}]
    return mounts(*chance.sample([f"c{number}" for number in NUMBERS], k=chance.choice((1, 1, 2))))
