"""Pods whose GpuClaim asks for the network or storage: where they run, and what their Binding carries."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.fabric import CuFile, Fabric, Hca, HcaPort
from allocation.names import ALLOCATION, HAMI_REGISTER
from allocation.steps import finish
from allocation.wire import record
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.binding.binder import allocation_annotations
from scheduler.binding.plugin_binder import handshake
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support import extending
from tests.scheduler.support.builders import node, state, status
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.scheduling import schedule

PORT, DOWN = HcaPort(1), HcaPort(1, "Down")
RDMA = Fabric(
    (Hca("mlx5_0", ports=(PORT,), gpu_direct=True), Hca("mlx5_1", ports=(DOWN,)), Hca("mlx5_2", ports=(PORT,))),
    CuFile(enabled=True),
)
_PREFERRED, _REQUIRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("preferred", "required"))
_ZONE = {"key": "zone", "operator": "Exists"}
_NEAR = {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [_ZONE]}}]}}
_APART = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
VARIABLES = {
    "nccl-ib-hca.gpu.scheduling/main": "=mlx5_2,mlx5_0",
    "nccl-net-gdr-level.gpu.scheduling/main": "PHB",
    "cufile-env-path-json.gpu.scheduling/main": "/etc/cufile.json",
}


def asking(name: str = "fast", *, network: dict[str, Any] | None = None, cu_file: str | None = None) -> GpuClaim:
    """Return a claim of one shared card that asks for the network or storage."""
    made = claim(name, exclusivity="Shared", memoryMiB=100)
    demands = {"network": network or {}, "storage": {"cuFile": cu_file} if cu_file else {}}
    spec = msgspec.convert({**msgspec.to_builtins(made.spec), **demands}, type(made.spec))
    return msgspec.structs.replace(made, spec=spec)


EVERYTHING = asking(network={"rdmaRequired": True, "preferredHcas": ["mlx5_2"]}, cu_file="Preferred")


def reporting(name: str, fabric: Fabric) -> GpuNodeStatus:
    """Return what the agent of a node with this fabric reports."""
    reported = status(name)
    assert reported.status is not None
    reported.status.fabric = fabric
    return reported


def cluster(claims: Iterable[GpuClaim], **fabrics: Fabric) -> ClusterState:
    """Return a cluster with these claims, and a node for each fabric."""
    made = state()
    for name, fabric in fabrics.items():
        made.set_node(node(name))
        made.agent_reports.set(reporting(name, fabric))
    for each in claims:
        made.set_claim(each)
    return made


def placed(made: ClusterState, pod: Pod) -> Scheduled:
    """Schedule a pod; fail unless it fits."""
    result = finish(schedule(made, pod))
    assert isinstance(result, Scheduled), result
    return result


def carried(chosen: Scheduled) -> dict[str, str]:
    """Return the annotations of a Binding by which containers use the fabric."""
    written = allocation_annotations(chosen, unix_seconds=0)
    return {key: value for key, value in written.items() if key.startswith(("nccl-", "cufile-"))}


@pytest.mark.parametrize(
    ("affinity", "path"),
    [
        ({}, "cached"),
        (_NEAR, "cached"),
        ({"podAntiAffinity": {_REQUIRED: [_APART]}}, "cached"),
        ({**_NEAR, "podAntiAffinity": {_REQUIRED: [_APART]}}, "full"),
    ],
)
def test_the_binding_carries_the_variables_of_the_chosen_node(affinity: dict[str, Any], path: str) -> None:
    """However the node was found: by the ranking, by preferences, by rules about other pods, or by evaluating each."""
    made = cluster([EVERYTHING], plain=Fabric(), rdma=RDMA)
    chosen = placed(made, claiming("a", EVERYTHING, affinity=affinity))
    assert (chosen.node, chosen.path) == ("rdma", path)
    assert carried(chosen) == VARIABLES


def test_every_gpu_container_has_its_own_annotations() -> None:
    """Their values are the same: the claim's cards belong to the pod."""
    made = cluster([EVERYTHING], rdma=RDMA)
    given = asking("slices", network={"rdmaRequired": True})
    made.set_claim(given)
    found = carried(placed(made, claiming("a", given, containers=("one", "two"))))
    assert found == {
        f"{variable}.gpu.scheduling/{container}": value
        for container in ("one", "two")
        for variable, value in (("nccl-ib-hca", "=mlx5_0,mlx5_2"), ("nccl-net-gdr-level", "PHB"))
    }


def test_a_claim_that_does_not_ask_adds_nothing() -> None:
    """Whatever the node has."""
    modest = claim("modest", exclusivity="Shared")
    assert carried(placed(cluster([modest], rdma=RDMA), claiming("a", modest))) == {}


def test_a_node_that_lacks_what_is_required_is_rejected_with_the_reason() -> None:
    """A port that is down does not count; `/filter` rejects with the same words, for good."""
    ports, storage = asking("ports", network={"minPorts": 3}), asking("storage", cu_file="Required")
    made = cluster([ports, storage], rdma=msgspec.structs.replace(RDMA, cu_file=CuFile()))
    for given, words in (
        (ports, "claim needs 3 RDMA ports, node has 2"),
        (storage, "claim needs GPUDirect Storage, which the node does not have"),
    ):
        pod = claiming(given.metadata.name, given)
        result = finish(schedule(made, pod))
        assert isinstance(result, Unschedulable)
        assert result.reasons == {"FabricMismatch"}
        assert words in result.note
        assert words in extending.filtered(extending.extending(made), pod, "rdma")["failedAndUnresolvableNodes"]["rdma"]


def test_a_report_counts_at_the_next_decision() -> None:
    """A port goes down and comes up again while the node's cards stay the same: cached rankings follow."""
    given = asking("ports", network={"minPorts": 2})
    made = cluster([given], rdma=RDMA)
    fits = []
    for name, fabric in (("a", RDMA), ("b", msgspec.structs.replace(RDMA, hcas=RDMA.hcas[:2])), ("c", RDMA)):
        made.agent_reports.set(reporting("rdma", fabric))
        fits.append(isinstance(finish(schedule(made, claiming(name, given))), Scheduled))
    assert fits == [True, False, True]


def test_preferred_adapters_choose_among_equal_nodes() -> None:
    """The name of the node would otherwise decide."""
    preferring = asking(network={"preferredHcas": ["mlx5_9"]})
    other = Fabric((Hca("mlx5_9", ports=(PORT,)),))
    chosen = placed(cluster([preferring], first=RDMA, second=other), claiming("a", preferring))
    assert chosen.node == "second"
    assert carried(chosen)["nccl-ib-hca.gpu.scheduling/main"] == "=mlx5_9"


def test_a_static_allocation_carries_them_too() -> None:
    """Its identity chose the cards, and its containers read the same variables."""
    made = cluster([EVERYTHING], rdma=RDMA)
    share = CardShare("GPU-rdma-1", 1, 100, 0)
    text = record.encode(Allocation("rdma", {"main": (share,)}, ClaimMark("fast", "Shared")))
    assert carried(placed(made, claiming("a", EVERYTHING, annotations={ALLOCATION: text}))) == VARIABLES


async def test_the_bind_verb_carries_them_too() -> None:
    """In extender mode the Binding is the same."""
    made, api = cluster([EVERYTHING], rdma=RDMA), extending.Bindings()
    pod = claiming("a", EVERYTHING)
    api.pods["a"] = pod
    made.set_pod(pod)
    assert await extending.bound(extending.extending(made, api), pod, "rdma") == ""
    (binding,) = api.written
    assert VARIABLES.items() <= binding["metadata"]["annotations"].items()


def test_on_a_node_of_hamis_plugin_nccl_finds_the_adapters_itself() -> None:
    """The plugin reports no fabric; the variables are empty there, and the handshake changes none of them."""
    made = state()
    preferring = asking(network={"preferredHcas": ["mlx5_0"]})
    made.set_claim(preferring)
    register = "GPU-n1-0,10,1000,100,NVIDIA-A100,0,true:"
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {HAMI_REGISTER: register}}))
    chosen = placed(made, claiming("a", preferring))
    assert carried(chosen) == {
        "nccl-ib-hca.gpu.scheduling/main": "",
        "nccl-net-gdr-level.gpu.scheduling/main": "",
    }
    assert not handshake(chosen, unix_seconds=0).keys() & carried(chosen).keys()
