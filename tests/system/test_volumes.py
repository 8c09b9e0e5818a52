"""Pods with claims, on a real control plane and a real node: each is bound with its volumes, and stays with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION
from lab import components, wait
from lab.client import client
from lab.fleet import SIMULATED_NODES
from lab.processes import Daemon
from lab.provisioner import STORAGE_CLASS
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.support.volumes import claim, local_volume, storage_class
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
SELECTED = "volume.kubernetes.io/selected-node"
STATIC = "static"
PICKY = "picky.example"
"""A class, its provisioner and its driver, which reports its capacity; the test acts as the provisioner."""


def mounting(name: str, claim_name: str, *, nodes: tuple[str, ...] = SIMULATED_NODES) -> dict[str, Any]:
    """Return the manifest of a pod with a slice and a claim, for certain nodes."""
    manifest = pod(name, gpu=1, gpumem=100)
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}
    manifest["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return manifest


@pytest.fixture
def static(tranche: Layout) -> Iterator[str]:
    """A class without a provisioner; its volumes are deleted after the test."""
    client(tranche).apply(storage_class(STATIC, "kubernetes.io/no-provisioner"))
    yield STATIC
    client(tranche).delete("storageclass", STATIC)


def claims(namespace: Namespace) -> dict[str, dict[str, Any]]:
    """Return the claims of a namespace by name."""
    items = client(namespace.layout).list("pvc", namespace=namespace.name)
    return {each["metadata"]["name"]: each for each in items}


def events(namespace: Namespace, name: str) -> dict[str, str]:
    """Return the last note of the events about a pod, by reason."""
    items = namespace.api.list("events.events.k8s.io", namespace=namespace.name, fields=f"regarding.name={name}")
    return {each["reason"]: each["note"] for each in sorted(items, key=lambda each: each["eventTime"] or "")}


# ---- a StatefulSet ---------------------------------------------------------------------------------------------------


def stateful_set(node: str) -> dict[str, Any]:
    """Return a StatefulSet of three; each container notes in its volume when it was first started."""
    template = pod("unused", node=node, gpu=1, gpumem=3000)["spec"]
    template["terminationGracePeriodSeconds"] = 1
    template["containers"][0] |= {
        "command": ["sh", "-c", "[ -e /data/first ] || hostname > /data/first; date >> /data/first; exec sleep 3600"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set"},
        "spec": {
            "serviceName": "set",
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "set"}},
            "template": {"metadata": {"labels": {"app": "set"}}, "spec": template},
            "volumeClaimTemplates": [claim("data")],
        },
    }


def test_claim_without_a_class_gets_a_volume(namespace: Namespace) -> None:
    """The lab has a default StorageClass, as a first user's cluster has."""
    made = claim("classless")
    del made["spec"]["storageClassName"]
    namespace.create(made, mounting("uses-it", "classless"))
    namespace.placed(1)
    created = namespace.get("persistentvolumeclaim", "classless")
    assert created["spec"]["storageClassName"] == STORAGE_CLASS
    wait.until(
        lambda: namespace.get("persistentvolumeclaim", "classless")["status"]["phase"] == "Bound",
        what="the volume of the claim",
        timeout_s=PATIENCE_S,
    )


@pytest.mark.kubelet
def test_statefulset_keeps_volumes_nodes_and_slices(tranche_node: Layout, namespace: Namespace) -> None:
    """Three pods run, each with its slice and its own volume; scaled down and up they find what they wrote."""

    def starts(name: str) -> list[str]:
        return namespace.kubectl("exec", name, "--", "cat", "/data/first").splitlines()

    def running() -> dict[str, dict[str, Any]]:
        namespace.kubectl("rollout", "status", "statefulset/set", KUBECTL_PATIENCE)
        return {each["metadata"]["name"]: each for each in namespace.placed(3)}

    namespace.create(stateful_set(tranche_node.node_name))
    before = running()
    for name, each in before.items():
        assert ALLOCATION in each["metadata"]["annotations"]
        assert starts(name)[0] == name
        assert len(starts(name)) == 2
    volumes = {name: each["spec"]["volumeName"] for name, each in claims(namespace).items()}
    assert len(set(volumes.values())) == 3
    try:
        namespace.kubectl("scale", "statefulset/set", "--replicas=0")
        namespace.kubectl("wait", "--for=delete", "pod", "--all", KUBECTL_PATIENCE)
        namespace.kubectl("scale", "statefulset/set", "--replicas=3")
        after = running()
        for name, each in after.items():
            assert each["spec"]["nodeName"] == before[name]["spec"]["nodeName"]
            assert (starts(name)[0], len(starts(name))) == (name, 3)
        assert {name: each["spec"]["volumeName"] for name, each in claims(namespace).items()} == volumes
    finally:
        namespace.kubectl("delete", "statefulset", "set", "--cascade=foreground", KUBECTL_PATIENCE)
        namespace.api.delete_all("pvc", namespace=namespace.name)


def test_pod_whose_volume_lost_its_node_says_so(tranche: Layout, namespace: Namespace) -> None:
    """The node of a local volume is gone: no other node can use the volume, and the event names the reason."""
    name = "gpu-lost-0"
    component = components.Component(
        "simulated-lost-node", (components.LAB_NAMESPACE, "simulated-nodes"), ("lab.simulated", name)
    )
    components.start(tranche, component)
    manifest = mounting("uses", "data", nodes=(name,))
    manifest["spec"]["containers"][0]["resources"] = {}
    manifest["spec"]["schedulerName"] = "tranche"
    try:
        namespace.create(claim("data"), manifest)
        (placed,) = namespace.placed(1)
        assert placed["spec"]["nodeName"] == name
    finally:
        Daemon(tranche, component.name).stop()
        namespace.api.delete("pod", "uses", namespace=namespace.name, grace_s=0, missing_ok=True, wait=False)
        client(tranche).delete("node", name)
    del manifest["spec"]["affinity"]
    manifest["metadata"]["name"] = "again"
    namespace.create(manifest)
    # A decision before the scheduler learns that the node is gone has another reason, so the last one counts.
    for said in (namespace.unplaced, lambda pod: events(namespace, pod).get("FilteringFailed", "")):
        wait.until(
            lambda said=said: "didn't match PersistentVolume's node affinity" in said("again"),
            what="the reason",
            timeout_s=PATIENCE_S,
        )
    namespace.delete("pod", "again")
    namespace.api.delete_all("pvc", namespace=namespace.name)


# ---- volumes of an administrator, and of other provisioners ----------------------------------------------------------


def test_pods_get_the_volumes_that_exist(tranche: Layout, namespace: Namespace, static: str) -> None:
    """A claim gets the volume that exists, on its node; a second pod waits for a volume, and gets the next one."""
    names = [f"pv-{namespace.name}-{number}" for number in range(2)]
    client(tranche).apply(local_volume(names[0], node=SIMULATED_NODES[2], storage_class=static))
    for number in range(2):
        namespace.create(claim(f"data-{number}", storage_class=static), mounting(f"p{number}", f"data-{number}"))
    (first,) = namespace.placed(1)
    assert first["spec"]["nodeName"] == SIMULATED_NODES[2]
    (loser,) = {"p0", "p1"} - {first["metadata"]["name"]}
    assert "didn't find available persistent volumes to bind" in namespace.unplaced(loser)
    client(tranche).apply(local_volume(names[1], node=SIMULATED_NODES[1], storage_class=static))
    namespace.placed(2)
    assert namespace.pod(loser)["spec"]["nodeName"] == SIMULATED_NODES[1]
    bound = {each["spec"]["volumeName"] for each in claims(namespace).values()}
    assert bound == set(names)
    namespace.empty()
    namespace.api.delete_all("pvc", namespace=namespace.name)
    for name in names:
        client(tranche).delete("pv", name)


@pytest.fixture
def picky(tranche: Layout) -> Iterator[str]:
    """A class whose provisioner is the test; two nodes have capacity."""
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": PICKY},
        "spec": {"storageCapacity": True, "attachRequired": False},
    }
    client(tranche).apply(storage_class(PICKY, PICKY), driver, *(capacity(node, "1Gi") for node in SIMULATED_NODES[:2]))
    yield PICKY
    for kind in ("storageclass", "csidriver"):
        client(tranche).delete(kind, PICKY)
    for node in SIMULATED_NODES[:2]:
        client(tranche).delete("csistoragecapacity", node, namespace="default")


def capacity(node: str, amount: str) -> dict[str, Any]:
    """Return the capacity that the provisioner reports for a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": node, "namespace": "default"},
        "storageClassName": PICKY,
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
        "capacity": amount,
    }


def test_pod_goes_elsewhere_when_the_provisioner_rejects_its_node(
    tranche: Layout, namespace: Namespace, picky: str
) -> None:
    """The node has no space after all: the selection is removed, and the pod is bound to another node with a volume."""

    def selected() -> str:
        annotations: dict[str, str] = claims(namespace)["data"]["metadata"].get("annotations", {})
        return annotations.get(SELECTED, "")

    namespace.create(claim("data", storage_class=picky), mounting("picks", "data", nodes=SIMULATED_NODES[:2]))
    first = wait.until(selected, what="a selected node", timeout_s=PATIENCE_S)
    client(tranche).apply(capacity(first, "0"))
    namespace.patch("pvc", "data", {"metadata": {"annotations": {SELECTED: None}}})
    second = wait.until(
        lambda: node if (node := selected()) not in ("", first) else None, what="another node", timeout_s=PATIENCE_S
    )
    reason = wait.until(
        lambda: events(namespace, "picks").get("FailedScheduling"), what="the event", timeout_s=PATIENCE_S
    )
    assert f"the provisioner of claim {namespace.name}/data rejected node {first}" in reason
    assert not namespace.pod("picks")["spec"].get("nodeName")
    reference = {"namespace": namespace.name, "name": "data", "uid": claims(namespace)["data"]["metadata"]["uid"]}
    name = f"pv-{namespace.name}"
    client(tranche).apply(local_volume(name, node=second, storage_class=picky, claim_ref=reference))
    (placed,) = namespace.placed(1)
    assert placed["spec"]["nodeName"] == second
    namespace.empty()
    namespace.api.delete_all("pvc", namespace=namespace.name)
    client(tranche).delete("pv", name)
