"""MIG on a real API server: existing instances, instances created on request, and processes killed in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, HAMI_ALLOCATED, HAMI_MIG
from allocation.wire import environment, mig_record, record
from cluster.api import MERGE_PATCH, Api
from cluster.connect import connect
from cluster.errors import ApiError
from cluster.resource import GPU_NODE_STATUSES
from lab import components, kubeconfig, wait
from lab.client import client
from lab.errors import LabError
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.conftest import MIG_NODE, Namespace, mig_status, pod
from tests.system.support import audit, truth

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
STATIC = "MIG-GPU-gpu-mig-0-0-0-4"
MAKER = "GPU-gpu-mig-0-1"


def mig_pod(name: str, *, card: str = MAKER, **limits: int) -> dict[str, Any]:
    """Return a pod that requests MIG instances of a card."""
    manifest = pod(name, node=MIG_NODE, gpu=limits.pop("gpu", 1), **limits)
    manifest["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": card}
    return manifest


def uuids(placed: dict[str, Any]) -> list[str]:
    """Return the UUIDs in a pod's allocation."""
    return [share.uuid for share in record.decode(placed["metadata"]["annotations"][ALLOCATION]).containers["main"]]


def requested(layout: Layout) -> list[dict[str, Any]]:
    """Return the instances that the scheduler requests from the node's agent."""
    spec = client(layout).get("gpunodestatus", MIG_NODE)["spec"]
    instances: list[dict[str, Any]] = spec.get("migInstances", [])
    return instances


def created(layout: Layout) -> list[str]:
    """Return the instances that the agent has created on request."""
    return [each["uuid"] for each in mig_status(layout).get("devices", []) if each.get("instance", {}).get("wish")]


def untouched(layout: Layout) -> None:
    """Wait until no instance is requested and only the administrator's instance exists."""

    def is_restored() -> bool:
        left = [each["uuid"] for each in mig_status(layout)["devices"] if "instance" in each]
        return not requested(layout) and left == [STATIC] and "migInstances" not in mig_status(layout)

    wait.until(is_restored, what="the node as it was", timeout_s=PATIENCE_S)
    wait.until(
        lambda: truth.scheduler_counts(layout) == truth.by_card(truth.recount(layout)),
        what="the scheduler's ledger equal to a recount",
        timeout_s=PATIENCE_S,
    )


def test_existing_instance_is_used(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """It is allocated whole, although a smaller one could be created; both formats of annotations name it."""
    namespace.create(mig_pod("static", card=f"GPU-gpu-mig-0-0,{MAKER}", gpumem=10000))
    (placed,) = namespace.placed(1)
    annotations = placed["metadata"]["annotations"]
    (share,) = record.decode(annotations[ALLOCATION]).containers["main"]
    assert (share.uuid, share.memory_mib, share.cores, share.parent) == (STATIC, 40960, 428, "GPU-gpu-mig-0-0")
    assert annotations[HAMI_ALLOCATED] == "GPU-gpu-mig-0-0,NVIDIA,40960,43:;"
    (entry,) = mig_record.decode(annotations[HAMI_MIG])
    assert (entry.gpu_uuid, entry.profile, entry.mig_uuid) == ("GPU-gpu-mig-0-0", "3g.40gb", STATIC)
    seen = environment.resolve(environment.references("main", 1), annotations)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == f"runtime.nvidia.com/gpu={STATIC}"
    assert seen["CUDA_VISIBLE_DEVICES"] == STATIC
    assert requested(tranche) == []


def test_instance_is_not_freed_while_its_pod_runs(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """The pod cannot be deleted immediately, and only its node can declare it ended."""
    namespace.create(mig_pod("holder", card=f"GPU-gpu-mig-0-0,{MAKER}", gpumem=10000))
    namespace.placed(1)
    with pytest.raises(LabError, match="pod holder holds GPUs of node"):
        namespace.delete("pod", "holder", grace_s=0, wait=False)
    with pytest.raises(LabError, match=f"only its node {MIG_NODE} may change it"):
        namespace.kubectl("patch", "pod", "holder", "--subresource=status", "-p", '{"status": {"phase": "Failed"}}')


def test_instance_is_created_and_destroyed_with_its_pod(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """It is requested in spec, created by the agent, bound by one Binding, and destroyed with its pod only."""
    namespace.create(mig_pod("made", gpumem=10000, gpucores=10), mig_pod("two", gpu=2, gpumem=15000))
    placed = {each["metadata"]["name"]: uuids(each) for each in namespace.placed(2)}
    assert placed["made"] == [f"MIG-{MAKER}-6-1"]
    assert len(set(placed["two"])) == 2
    assert sorted(created(tranche)) == sorted([*placed["made"], *placed["two"]])
    assert {each["card"] for each in requested(tranche)} == {MAKER}
    bound = truth.bindings(audit.writes(tranche, namespace=namespace.name, user=audit.SCHEDULER))
    assert bound == {"made": 1, "two": 1}
    namespace.delete("pod", "made")
    wait.until(
        lambda: sorted(created(tranche)) == sorted(placed["two"]), what="one instance less", timeout_s=PATIENCE_S
    )
    namespace.delete("pod", "two")
    untouched(tranche)


def test_impossible_instance_is_reported_and_not_requested(
    tranche: Layout, mig_node: str, namespace: Namespace
) -> None:
    """No profile has so much memory: the reason says so, and no instance is requested."""
    namespace.create(mig_pod("huge", gpumem=81000, gpu=2))
    assert "CardMigTopologyInfeasible" in namespace.unplaced("huge")
    assert requested(tranche) == []


def test_shared_card_on_a_node_with_mig_cards(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """A pod that names no mode shares the card that is not in MIG mode."""
    namespace.create(pod("shares", node=MIG_NODE, gpu=1, gpumem=1000))
    (placed,) = namespace.placed(1)
    assert uuids(placed) == ["GPU-gpu-mig-0-2"]


@pytest.mark.parametrize("victim", ["scheduler", "agent"])
@pytest.mark.parametrize("survivor", ["pod", "none"])
def test_process_killed_between_the_steps(
    tranche: Layout, mig_node: str, namespace: Namespace, victim: str, survivor: str
) -> None:
    """The state in the API decides: the pod gets its instance, or the instance is destroyed if the pod is gone."""
    agent, scheduler = Daemon(tranche, "agent"), Daemon(tranche, "scheduler")
    agent.stop()
    try:
        namespace.create(mig_pod("between", gpumem=10000))
        wait.until(lambda: requested(tranche), what="an instance request", timeout_s=PATIENCE_S)
        if victim == "scheduler":
            scheduler.stop()
            components.start(tranche, components.component(tranche, "agent"))
            wait.until(lambda: created(tranche), what="the instance", timeout_s=PATIENCE_S)
        if survivor == "none":
            namespace.delete("pod", "between")
    finally:
        components.start(tranche, components.component(tranche, "scheduler"))
        components.start(tranche, components.component(tranche, "agent"))
    if survivor == "pod":
        (placed,) = namespace.placed(1)
        assert uuids(placed) == [f"MIG-{MAKER}-6-1"]
        namespace.delete("pod", "between")
    untouched(tranche)


def test_restarted_agent_keeps_instances_in_use(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """It keeps them even when its object was deleted: it destroys an instance only after the scheduler says so."""
    namespace.create(mig_pod("stays", gpumem=10000))
    (placed,) = namespace.placed(1)
    Daemon(tranche, "agent").stop()
    components.start(tranche, components.component(tranche, "agent"))
    client(tranche).delete("gpunodestatus", MIG_NODE)
    wait.until(
        lambda: mig_status(tranche) and created(tranche) == uuids(placed) and len(requested(tranche)) == 1,
        what="the instance and its request",
        timeout_s=PATIENCE_S,
    )
    namespace.delete("pod", "stays")
    untouched(tranche)


async def refusal(identity: Path, body: dict[str, Any]) -> str:
    """Patch the MIG node's object with an identity, as a dry run; return the error, empty if it is accepted."""
    async with connect(program="tranche-test", kubeconfig=str(identity)) as connection:
        try:
            await Api(connection).request(
                "PATCH",
                GPU_NODE_STATUSES.path(name=MIG_NODE),
                params={"dryRun": "All"},
                body=body,
                content_type=MERGE_PATCH,
            )
        except ApiError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("role", ["administrator", "agent", "scheduler"])
async def test_only_the_scheduler_requests_instances(tranche: Layout, mig_node: str, role: str) -> None:
    """Such a request creates instances, or destroys them under running pods; the scheduler may write nothing else."""
    identity = tranche.kubeconfig
    if role != "administrator":
        identity = kubeconfig.service_account_kubeconfig(
            tranche, namespace="tranche-system", name=f"tranche-{role}", node=mig_node if role == "agent" else ""
        )
    request = {"id": "u/0", "card": MAKER, "profile": "1g.10gb", "placement": {"start": 6, "size": 1}}
    requesting = await refusal(identity, {"spec": {"migInstances": [request]}})
    other = await refusal(identity, {"metadata": {"labels": {"mine": "1"}}})
    if role == "scheduler":
        assert requesting == ""
        assert "may write nothing of a GpuNodeStatus but spec.migInstances" in other
    else:
        assert "spec.migInstances is written by the Tranche scheduler" in requesting
        assert other == ""
