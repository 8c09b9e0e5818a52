"""MIG on a real API server: an instance that is there, one that must be made first, and what may die in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation import environment, mig_record, record
from allocation.names import ALLOCATION, HAMI_ALLOCATED, HAMI_MIG
from cluster.api import MERGE_PATCH, Api
from cluster.connection import connect
from cluster.errors import ApiError
from cluster.resource import GPU_NODE_STATUSES
from lab import components, kubeconfig, kubectl, wait
from lab.processes import Daemon
from tests.system import audit, truth
from tests.system.conftest import MIG_NODE, PATIENCE_S, Namespace, mig_status, pod

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
STATIC = "MIG-GPU-gpu-mig-0-0-0-4"
MAKER = "GPU-gpu-mig-0-1"


def mig_pod(name: str, *, card: str = MAKER, **limits: int) -> dict[str, Any]:
    """Answer a pod that wants MIG instances of a card."""
    manifest = pod(name, node=MIG_NODE, gpu=limits.pop("gpu", 1), **limits)
    manifest["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": card}
    return manifest


def uuids(placed: dict[str, Any]) -> list[str]:
    """Answer the cards of a pod."""
    return [share.uuid for share in record.decode(placed["metadata"]["annotations"][ALLOCATION]).containers["main"]]


def wished(layout: Layout) -> list[dict[str, Any]]:
    """Answer what the scheduler asks of the node's agent."""
    spec = kubectl.get(layout, "gpunodestatus", MIG_NODE)["spec"]
    found: list[dict[str, Any]] = spec.get("migInstances", [])
    return found


def made(layout: Layout) -> list[str]:
    """Answer the instances that were made for wishes."""
    return [each["uuid"] for each in mig_status(layout).get("devices", []) if each.get("instance", {}).get("wish")]


def untouched(layout: Layout) -> None:
    """Wait until nothing is asked for and nothing is left of what was made; the administrator's instance is there."""

    def is_so() -> bool:
        left = [each["uuid"] for each in mig_status(layout)["devices"] if "instance" in each]
        return not wished(layout) and left == [STATIC] and "migInstances" not in mig_status(layout)

    wait.until(is_so, what="the node as it was", timeout_s=PATIENCE_S)
    wait.until(
        lambda: truth.scheduler_counts(layout) == truth.by_card(truth.recount(layout)),
        what="the scheduler's ledger equal to a recount",
        timeout_s=PATIENCE_S,
    )


def test_an_instance_that_is_there(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """It is taken whole, though a smaller one could be made; our annotations and HAMi's say which it is."""
    namespace.create(mig_pod("static", card=f"GPU-gpu-mig-0-0,{MAKER}", gpumem=10000))
    (placed,) = namespace.placed(1)
    annotations = placed["metadata"]["annotations"]
    (share,) = record.decode(annotations[ALLOCATION]).containers["main"]
    assert (share.uuid, share.memory_mib, share.cores, share.parent) == (STATIC, 40960, 428, "GPU-gpu-mig-0-0")
    assert annotations[HAMI_ALLOCATED] == "GPU-gpu-mig-0-0,NVIDIA,40960,43:;"
    (entry,) = mig_record.decode(annotations[HAMI_MIG])
    assert (entry.gpu_uuid, entry.profile, entry.mig_uuid) == ("GPU-gpu-mig-0-0", "3g.40gb", STATIC)
    seen = environment.resolve(environment.references("main", 1), annotations)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == seen["CUDA_VISIBLE_DEVICES"] == STATIC
    assert wished(tranche) == []


def test_an_instance_is_made_and_goes_with_its_pod(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """Asked for in spec, made by the agent, bound by one Binding; deleted, it is destroyed, and no other one is."""
    namespace.create(mig_pod("made", gpumem=10000, gpucores=10), mig_pod("two", gpu=2, gpumem=15000))
    placed = {each["metadata"]["name"]: uuids(each) for each in namespace.placed(2)}
    assert placed["made"] == [f"MIG-{MAKER}-6-1"]
    assert len(set(placed["two"])) == 2
    assert sorted(made(tranche)) == sorted([*placed["made"], *placed["two"]])
    assert {each["card"] for each in wished(tranche)} == {MAKER}
    bound = truth.bindings(audit.writes(tranche, namespace=namespace.name, user=audit.SCHEDULER))
    assert bound == {"made": 1, "two": 1}
    namespace.kubectl("delete", "pod", "made")
    wait.until(lambda: sorted(made(tranche)) == sorted(placed["two"]), what="one instance less", timeout_s=PATIENCE_S)
    namespace.kubectl("delete", "pod", "two")
    untouched(tranche)


def test_what_no_card_can_make_is_said(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """No profile has so much memory: a reason for each unit, and nothing is asked for."""
    namespace.create(mig_pod("huge", gpumem=81000, gpu=2))
    assert "CardMigTopologyInfeasible" in namespace.unplaced("huge")
    assert wished(tranche) == []


def test_a_shared_card_beside_cards_in_mig_mode(tranche: Layout, mig_node: str, namespace: Namespace) -> None:
    """A pod that names no mode shares the card that is not in MIG mode."""
    namespace.create(pod("shares", node=MIG_NODE, gpu=1, gpumem=1000))
    (placed,) = namespace.placed(1)
    assert uuids(placed) == ["GPU-gpu-mig-0-2"]


@pytest.mark.parametrize("victim", ["scheduler", "agent"])
@pytest.mark.parametrize("survivor", ["pod", "nobody"])
def test_killed_between_the_steps(
    tranche: Layout, mig_node: str, namespace: Namespace, victim: str, survivor: str
) -> None:
    """What stands in the API decides: the pod gets its instance, or it is destroyed if the pod is gone."""
    agent, scheduler = Daemon(tranche, "agent"), Daemon(tranche, "scheduler")
    agent.stop()
    try:
        namespace.create(mig_pod("between", gpumem=10000))
        wait.until(lambda: wished(tranche), what="a wish", timeout_s=PATIENCE_S)
        if victim == "scheduler":
            scheduler.stop()
            components.start(tranche, components.component(tranche, "agent"))
            wait.until(lambda: made(tranche), what="the instance", timeout_s=PATIENCE_S)
        if survivor == "nobody":
            namespace.kubectl("delete", "pod", "between")
    finally:
        components.start(tranche, components.component(tranche, "scheduler"))
        components.start(tranche, components.component(tranche, "agent"))
    if survivor == "pod":
        (placed,) = namespace.placed(1)
        assert uuids(placed) == [f"MIG-{MAKER}-6-1"]
        namespace.kubectl("delete", "pod", "between")
    untouched(tranche)


def test_an_agent_that_starts_anew_leaves_instances_in_use(
    tranche: Layout, mig_node: str, namespace: Namespace
) -> None:
    """And so it is when its object is deleted: without a word of the scheduler nothing is destroyed."""
    namespace.create(mig_pod("stays", gpumem=10000))
    (placed,) = namespace.placed(1)
    Daemon(tranche, "agent").stop()
    components.start(tranche, components.component(tranche, "agent"))
    kubectl.run(tranche, "delete", "gpunodestatus", MIG_NODE)
    wait.until(
        lambda: mig_status(tranche) and made(tranche) == uuids(placed) and len(wished(tranche)) == 1,
        what="the instance and the wish",
        timeout_s=PATIENCE_S,
    )
    namespace.kubectl("delete", "pod", "stays")
    untouched(tranche)


async def refusal(identity: Path, body: dict[str, Any]) -> str:
    """Answer why who has `identity` may not change the MIG node's object so, empty where he may; nothing is kept."""
    async with connect(kubeconfig=str(identity)) as connection:
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


@pytest.mark.parametrize("who", ["administrator", "agent", "scheduler"])
async def test_nobody_but_the_scheduler_asks_for_instances(tranche: Layout, mig_node: str, who: str) -> None:
    """Whoever could would have instances made, and destroyed under running pods; the scheduler may say nothing else."""
    identity = tranche.kubeconfig
    if who != "administrator":
        identity = kubeconfig.service_account_kubeconfig(
            tranche, namespace="tranche-system", name=f"tranche-{who}", node=mig_node if who == "agent" else ""
        )
    wish = {"id": "u/0", "card": MAKER, "profile": "1g.10gb", "placement": {"start": 6, "size": 1}}
    asked = await refusal(identity, {"spec": {"migInstances": [wish]}})
    other = await refusal(identity, {"metadata": {"labels": {"mine": "1"}}})
    if who == "scheduler":
        assert asked == ""
        assert "may write nothing of a GpuNodeStatus but spec.migInstances" in other
    else:
        assert "spec.migInstances is written by the Tranche scheduler" in asked
        assert other == ""
