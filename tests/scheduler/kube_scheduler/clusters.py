"""Random clusters, each with one pending pod, as `lab.scheduling` takes them: plain JSON of the Kubernetes API."""

from tests.scheduler.kube_scheduler import pods, selectors
from tests.scheduler.kube_scheduler.selectors import NAMESPACES, Chance, Manifest
from tests.scheduler.kube_scheduler.volumes import add_storage


def cluster(seed: int) -> Manifest:
    """Return a cluster of up to eight nodes and twelve pods, most with storage; equal seeds give equal clusters."""
    chance = Chance(seed)
    nodes = [_node(chance, f"n{number}") for number in range(chance.randint(1, 8))]
    names = [node["metadata"]["name"] for node in nodes]
    running = [
        pods.running_pod(chance, f"p{number}", chance.choice((*names, "gone") if chance.maybe(0.15) else names))
        for number in range(chance.randint(0, 12))
    ]
    made = {
        "nodes": nodes,
        "pods": running,
        "namespaces": [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()],
        "services": [_service(chance)] if chance.maybe(0.1) else [],
        "pod": pods.pending_pod(chance, names),
    }
    if chance.maybe(0.7):
        add_storage(chance, made)
    return made


def _service(chance: Chance) -> Manifest:
    meta = {"name": "service", "namespace": chance.choice(list(NAMESPACES))}
    return {"metadata": meta, "spec": {"selector": {"app": chance.choice(("web", "db", "train"))}}}


def _node(chance: Chance, name: str) -> Manifest:
    taints: list[Manifest] = [taint for taint in pods.TAINTS if chance.maybe(0.1)]
    spec: Manifest = {"taints": taints}
    if chance.maybe(0.08):
        spec["unschedulable"] = True
        if chance.maybe(0.7):
            taints.append(pods.CORDON)
    allocatable = {
        "cpu": chance.choice(("2", "8", "15910m", "32")),
        "memory": chance.choice(("8Gi", "32Gi", "64Gi", "60000000Ki")),
        "pods": chance.choice(("2", "110", "110", "110")),
    }
    if chance.maybe(0.8):
        allocatable["ephemeral-storage"] = "40Gi"
    if chance.maybe(0.7):
        allocatable["example.com/fpga"] = "2"
    images = [
        {
            "names": [image if ":" in image else f"{image}:latest"],
            "sizeBytes": chance.choice((5, 80, 700, 3000)) * 2**20,
        }
        for image in chance.some(pods.IMAGES, 3)
    ]
    return {
        "metadata": {"name": name, "labels": selectors.node_labels(chance, name)},
        "spec": spec,
        "status": {"allocatable": allocatable, "capacity": allocatable, "images": images},
    }
