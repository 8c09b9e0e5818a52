"""A cluster that HAMi has used: its nodes and pods are counted as they are, and new pods fit in (feature row 97)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION
from allocation.wire import record
from lab import kubeconfig, kubectl, wait
from lab.client import client
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import truth
from tests.system.support.hami_nodes import NODES, hami_nodes
from tests.system.support.hami_plugin import CARDS, MEMORY_MIB, card
from tests.system.support.preemptions import stay
from tests.system.test_hami_nodes import on_hami, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
JSON, SEVEN, NINE = NODES
OURS_MIB = 9000


def container(name: str, memory: int = 0, **more: Any) -> dict[str, Any]:
    """Return a container, which requests a card if `memory` is given."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory} if memory else {}
    return {"name": name, "image": "tranche.local/busybox:lab", "resources": {"limits": limits}, **more}


def entry(node: str, index: int, memory: int) -> str:
    """Return one device of HAMi's string."""
    return f"{card(node, index)},NVIDIA,{memory},5:"


def hami_pod(
    name: str, node: str, string: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """Return a pod that HAMi's scheduler has bound, with cards."""
    annotations = {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": "1755757239",
        "hami.io/vgpu-devices-to-allocate": ";" * string.count(";"),
        "hami.io/vgpu-devices-allocated": string,
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1755757240",
    }
    spec = {
        "schedulerName": "hami-scheduler",
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "initContainers": list(init),
        "containers": list(containers),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


BEFORE = (
    hami_pod(
        "right",
        JSON,
        entry(JSON, 0, 10000) + ";" + entry(JSON, 1, 8000) + ";",
        container("one", 10000),
        container("two", 8000),
    ),
    # HAMi loses the entries of leading containers without GPU (its issue 2899).
    hami_pod("misaligned", JSON, entry(JSON, 0, 12000) + ";", container("web"), container("train", 12000)),
    hami_pod("terminating", JSON, entry(JSON, 0, 2000) + ";", container("main", 2000)),
    hami_pod("finished", JSON, entry(JSON, 0, 16000) + ";", container("main", 16000)),
    hami_pod("init-only", SEVEN, entry(SEVEN, 0, 20000) + ";;", container("main"), init=(container("prepare", 20000),)),
    hami_pod(
        "sidecar",
        SEVEN,
        entry(SEVEN, 1, 5000) + ";" + entry(SEVEN, 1, 6000) + ";",
        container("main", 6000),
        init=(container("proxy", 5000, restartPolicy="Always"),),
    ),
    # Its init container has ended, but runs again if the sandbox is recreated.
    hami_pod(
        "init-done",
        SEVEN,
        entry(SEVEN, 1, 15000) + ";" + entry(SEVEN, 1, 4000) + ";",
        container("main", 4000),
        init=(container("prepare", 15000),),
    ),
    hami_pod(
        "misaligned-after-init",
        SEVEN,
        entry(SEVEN, 1, 3000) + ";",
        container("web"),
        container("train", 3000),
        init=(container("prepare"),),
    ),
    # An old form of "no device".
    hami_pod("empty-word", NINE, ",,0,0:;" + entry(NINE, 0, 5000) + ";", container("web"), container("train", 5000)),
)
USED_MIB = {
    card(JSON, 0): 10000 + 12000 + 2000,
    card(JSON, 1): 8000,
    card(SEVEN, 0): 20000,
    card(SEVEN, 1): (5000 + 6000) + 15000 + 3000,
    card(NINE, 0): 5000,
    card(NINE, 1): 0,
}


@pytest.fixture
def cluster(
    tranche: Layout, plain_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Namespace]:
    """Nodes registered in each of HAMi's forms, with HAMi's pods only."""
    trusted = kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-static")
    with hami_nodes(tranche, tmp_path_factory.mktemp("component")):
        manifests: list[dict[str, Any]] = json.loads(json.dumps(BEFORE))
        for manifest in manifests:
            if manifest["metadata"]["name"] == "terminating":
                stay(manifest)
            kubectl.run(
                tranche,
                *("-n", plain_namespace.name, "create", "-f", "-"),
                stdin=json.dumps(manifest),
                kubeconfig=trusted,
            )
        plain_namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod", "--all")
        plain_namespace.delete("pod", "terminating", wait=False)
        node = plain_namespace.pod("finished")["spec"]["nodeName"]
        plain_namespace.set_phase("finished", "Succeeded", node=node)
        yield plain_namespace
        plain_namespace.empty()


def test_hamis_pods_are_counted_and_new_pods_fit_beside_them(
    tranche: Layout, cluster: Namespace, namespace: Namespace
) -> None:
    """HAMi's allocations are counted to the MiB; new pods get exactly what is left, and one more waits."""

    def used() -> dict[str, int]:
        return {uuid: memory for uuid, (memory, _, _) in truth.scheduler_counts(tranche).items() if uuid in USED_MIB}

    wait.until(lambda: used() == USED_MIB, what="HAMi's pods counted", timeout_s=PATIENCE_S)
    count = sum((MEMORY_MIB - memory) // OURS_MIB for memory in USED_MIB.values())
    assert len(USED_MIB) == CARDS * len(NODES)
    namespace.create(*(on_hami(f"p{index:02}", gpu=1, gpumem=OURS_MIB, gpucores=1) for index in range(count + 1)))
    placed = namespace.placed(count)
    wait.until(
        lambda: sum(each["spec"].get("nodeName") is None for each in namespace.pods()) == 1,
        what="one pod that waits",
        timeout_s=PATIENCE_S,
    )
    (waits,) = (each["metadata"]["name"] for each in namespace.pods() if "nodeName" not in each["spec"])
    assert namespace.unplaced(waits).count("2/2 CardInsufficientMemory") == 1
    for each in placed:
        assert record.decode(each["metadata"]["annotations"][ALLOCATION]).node in NODES
    counted = truth.by_card(truth.recount(tranche))
    assert {uuid: counted[uuid][0] - memory for uuid, memory in USED_MIB.items()} == {
        uuid: (MEMORY_MIB - memory) // OURS_MIB * OURS_MIB for uuid, memory in USED_MIB.items()
    }
    namespace.delete("pod", waits)
    served(namespace, count)


def test_node_known_only_by_its_annotation_accepts_pods_at_once(tranche: Layout, namespace: Namespace) -> None:
    """It advertises no device and no agent has reported; within the grace period it accepts pods, without a lock."""
    node = "hami-bare"
    text = json.dumps(
        [{"id": f"GPU-{node}-0", "count": 4, "devmem": 4000, "devcore": 100, "type": "NVIDIA T4", "health": True}]
    )
    labels = {"kubernetes.io/hostname": node}
    metadata = {"name": node, "labels": labels, "annotations": {"hami.io/node-nvidia-register": text}}
    resources = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    client(tranche).apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    try:
        status = json.dumps({"status": {"capacity": resources, "allocatable": resources}})
        kubectl.run(tranche, "patch", "node", node, "--subresource", "status", "--type", "merge", "-p", status)
        manifest = pod("first", node=node, gpu=1, gpumem=4000)
        manifest["spec"]["tolerations"] = [{"operator": "Exists"}]
        namespace.create(manifest)
        (placed,) = namespace.placed(1)
        assert placed["spec"]["nodeName"] == node
        assert "hami.io/bind-phase" not in placed["metadata"]["annotations"]
    finally:
        namespace.remove("first")
        client(tranche).delete("node", node)
