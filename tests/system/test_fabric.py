"""Pods whose GpuClaim asks for the network or storage of their node, from admission to the values that they read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.fabric import VARIABLES
from allocation.names import CLAIM
from cli import env
from cli.kube.objects import Pod
from lab import fleet, kubectl
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import Namespace, pod
from tests.system.support import simulated_nodes
from tests.system.test_claim_pods import waits_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = "gpu-sim-fabric"
ORDINARY = fleet.SIMULATED_NODES[0]
RDMA = {"network": {"rdmaRequired": True, "preferredHcas": ["mlx5_1"]}}


def fabric(*, state: str = "Active", cu_file: bool = True) -> dict[str, Any]:
    """Return a fabric whose two adapters have a port in `state` each; a third has one that is down."""
    adapters = {"mlx5_0": state, "mlx5_1": state, "mlx5_10": "Down"}
    hcas = [
        {"name": name, "gpuDirect": True, "ports": [{"number": 1, "state": each}]} for name, each in adapters.items()
    ]
    return {"hcas": hcas, "cuFile": {"enabled": cu_file}}


def report(layout: Layout, fabric: dict[str, Any]) -> None:
    """Report the fabric and the cards of the node, as its agent would."""
    devices = [{"id": index, "uuid": fleet.card(NODE, index), "memoryMiB": 81920} for index in range(4)]
    patch = json.dumps({"status": {"devices": devices, "fabric": fabric}})
    kubectl.run(layout, "patch", "gpunodestatus", NODE, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def network_node(tranche: Layout) -> Iterator[str]:
    """An additional simulated node, the only one with a fabric; the test is its agent."""
    group, now = "gpu.scheduling/v1", datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    status = {"apiVersion": group, "kind": "GpuNodeStatus", "metadata": {"name": NODE}, "spec": {"nodeName": NODE}}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"agent-{NODE}", "namespace": "tranche-system"},
        "spec": {"holderIdentity": "test", "leaseDurationSeconds": 3600, "renewTime": now},
    }
    with simulated_nodes.running(tranche, NODE):
        client(tranche).apply(lease)
        client(tranche).apply(status)
        report(tranche, fabric())
        yield NODE
    client(tranche).delete("lease", f"agent-{NODE}", namespace="tranche-system")


def claim(name: str, *, on: str = "", **demands: Any) -> dict[str, Any]:
    """Return a claim of one card, on one node if `on` names it."""
    selector = {"selector": {"matchLabels": {"kubernetes.io/hostname": on}}} if on else {}
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"count": 1}, **selector, **demands},
    }


def claiming(name: str, claim_name: str) -> dict[str, Any]:
    """Return a pod that names a claim, and whose second container requests no GPU."""
    made = pod(name)
    (main,) = made["spec"]["containers"]
    made["spec"]["containers"].append({**main, "name": "blind"})
    made["metadata"]["annotations"] = {CLAIM: claim_name}
    return made


def values(placed: dict[str, Any], container: str = "main") -> dict[str, str]:
    """Return the variables of the fabric as `kubectl gpu env` shows them."""
    (shown,) = env.of_pod(msgspec.convert(placed, Pod)).only(container).containers
    return {each.name: each.value for each in shown.variables if each.name in VARIABLES}


def test_pod_runs_where_the_network_is_and_reads_its_adapters(namespace: Namespace, network_node: str) -> None:
    """By the annotations of its Binding; a container without a GPU reads none of them."""
    namespace.create(claim("fast", **RDMA, storage={"cuFile": "Required"}), claiming("p", "fast"))
    (placed,) = namespace.placed(1)
    assert placed["spec"]["nodeName"] == network_node
    expected = {
        "NCCL_IB_HCA": "=mlx5_1,mlx5_0",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "CUFILE_ENV_PATH_JSON": "/etc/cufile.json",
    }
    assert values(placed) == expected
    annotations = placed["metadata"]["annotations"]
    assert [annotations[f"{name}.gpu.scheduling/main"] for name in ("nccl-ib-hca", "nccl-net-gdr-level")] == [
        "=mlx5_1,mlx5_0",
        "PHB",
    ]
    assert values(placed, "blind") == {}


def test_pod_waits_where_the_network_is_not(namespace: Namespace, network_node: str) -> None:
    """The condition says which node lacks what."""
    namespace.create(
        claim("network", on=ORDINARY, network={"minPorts": 2}),
        claim("storage", on=ORDINARY, storage={"cuFile": "Required"}),
    )
    namespace.create(claiming("a", "network"), claiming("b", "storage"))
    waits_for(namespace, "a", "claim needs 2 RDMA ports, node has 0")
    waits_for(namespace, "b", "claim needs GPUDirect Storage, which the node does not have")
    assert "FabricMismatch" in namespace.unplaced("a")


def test_waiting_pod_is_placed_when_a_port_comes_up(namespace: Namespace, network_node: str) -> None:
    """The report of the agent is an event that may help it."""
    report(namespace.layout, fabric(state="Down"))
    namespace.create(claim("fast", on=network_node, **RDMA), claiming("p", "fast"))
    waits_for(namespace, "p", "claim needs 1 RDMA port, node has 0")
    report(namespace.layout, fabric())
    (placed,) = namespace.placed(1)
    assert values(placed)["NCCL_IB_HCA"] == "=mlx5_1,mlx5_0"


def test_claim_that_asks_for_neither_adds_no_variable(namespace: Namespace, network_node: str) -> None:
    """Whatever the node has."""
    namespace.create(claim("cards", on=network_node), claiming("modest", "cards"))
    (placed,) = namespace.placed(1)
    assert values(placed) == {}
    assert not [key for key in placed["metadata"]["annotations"] if key.startswith(("nccl-", "cufile-"))]


def test_users_write_none_of_the_annotations(namespace: Namespace, network_node: str) -> None:
    """Neither at creation, where the kubelet would take them for the scheduler's, nor later."""
    namespace.create(claim("fast", **RDMA), claiming("p", "fast"))
    namespace.placed(1)
    for variable in VARIABLES:
        key = f"{variable.lower().replace('_', '-')}.gpu.scheduling/main"
        forged = claiming("forged", "fast")
        forged["metadata"]["annotations"][key] = "=mlx5_9"
        with pytest.raises(LabError, match=key):
            namespace.create(forged)
        with pytest.raises(LabError, match=key):
            namespace.patch("pod", "p", {"metadata": {"annotations": {key: "=mlx5_9"}}})


def test_users_own_value_stays(namespace: Namespace, network_node: str) -> None:
    """It gives no card."""
    own = claiming("own", "fast")
    own["spec"]["containers"][0]["env"] = [{"name": "NCCL_IB_HCA", "value": "^mlx5_0"}]
    namespace.create(claim("fast", **RDMA), own)
    (placed,) = namespace.placed(1)
    assert values(placed) == {"NCCL_IB_HCA": "^mlx5_0", "NCCL_NET_GDR_LEVEL": "PHB"}
