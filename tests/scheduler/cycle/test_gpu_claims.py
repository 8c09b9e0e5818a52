"""Pods with a GpuClaim: what they wait for, which cards they get, and what they keep others from."""

from typing import Any

import pytest

from allocation.delivery import NodeDelivery
from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION, HAMI_REGISTER
from allocation.steps import finish
from cluster.gpu_claim import GpuClaim
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.extending import extending, filtered, reasons
from tests.scheduler.support.popping import due
from tests.scheduler.support.scheduling import schedule
from tests.scheduler.support.worlds import bound


def cluster(*cards: Card, claims: tuple[GpuClaim, ...] = (), name: str = "n0") -> ClusterState:
    """Return a cluster of one node with `cards`, and `claims`."""
    made = state()
    made.set_node(node(name))
    inventory = status_of(NodeInventory(name, cards or (Card("GPU-0", 0, 1000), Card("GPU-1", 1, 1000))))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name, resource_version="1"), inventory, Spec(name)))
    for each in claims:
        made.set_claim(each)
    return made


def placed(made: ClusterState, asks: Pod) -> Scheduled:
    """Schedule and bind a pod; fail unless it fits."""
    made.set_pod(asks)
    result = finish(schedule(made, asks))
    assert isinstance(result, Scheduled), result
    made.set_pod(bound(asks, result), asks)
    return result


def note(made: ClusterState, asks: Pod) -> str:
    """Return why a pod does not fit, which `/filter` says as well."""
    result = finish(schedule(made, asks))
    assert isinstance(result, Unschedulable), result
    refused = reasons(filtered(extending(made), asks, "n0"))
    assert refused["n0"] in result.note
    return result.note


async def rejected(made: ClusterState, *asks: Pod) -> list[str]:
    """Schedule pods that do not fit, and put them back into the queue; return the reasons."""
    for each in asks:
        made.set_pod(each)
    notes = []
    for _ in asks:
        entry = await due(made.queue)
        assert entry is not None
        result = finish(schedule(made, entry.pod))
        assert isinstance(result, Unschedulable), result
        made.queue.add_unschedulable(entry, result)
        notes.append(result.note)
    return notes


# ---- the claim and what admission wrote ------------------------------------------------------------------------------


async def test_a_pod_waits_for_its_claim_and_wakes_alone() -> None:
    """The claim's appearance wakes the pods that name it, in its namespace, and no other pod."""
    made = cluster()
    mine, other = claim("mine"), claim("other")
    twins = [claiming("a", mine), claiming("b", mine)]
    others = [claiming("c", other), claiming("d", claim("mine", namespace="team")), pod("e", memory=5000)]
    notes = await rejected(made, *twins, *others)
    assert notes[0] == "GpuClaimNotFound: GpuClaim mine does not exist: create it in the pod's namespace"
    assert await due(made.queue) is None
    made.set_claim(mine)
    woken = [await due(made.queue) for _ in range(3)]
    assert [each and each.pod.metadata.name for each in woken] == ["a", "b", None]
    assert woken[0] is not None
    assert isinstance(finish(schedule(made, woken[0].pod)), Scheduled)


async def test_a_claim_that_is_created_again_is_read_again() -> None:
    """A pod that contradicts it is held, and the reason has both values; deletion and creation are judged at once."""
    first, second = claim("c"), claim("c", count=2)
    made = cluster(claims=(first,))
    (held,) = await rejected(made, claiming("a", second))
    assert held.startswith("PodHeld: ")
    assert 'limits["nvidia.com/gpu"]' in held
    assert "2" in held
    assert "GpuClaim c gives 1" in held
    made.drop_claim(first)
    entry = await due(made.queue)
    assert entry is not None
    gone = finish(schedule(made, entry.pod))
    assert isinstance(gone, Unschedulable)
    assert gone.note.startswith("GpuClaimNotFound")
    made.queue.add_unschedulable(entry, gone)
    made.set_claim(second)
    entry = await due(made.queue)
    assert entry is not None
    assert isinstance(finish(schedule(made, entry.pod)), Scheduled)


async def test_a_claim_that_changes_during_a_cycle_starts_the_cycle_again() -> None:
    """The result was computed for what the claim gave before."""
    first = claim("c")
    made = state(*(f"n{number:02}" for number in range(70)))
    made.set_claim(first)
    made.set_pod(claiming("a", first))
    entry = await due(made.queue)
    assert entry is not None
    steps = schedule(made, entry.pod)
    next(steps)
    made.drop_claim(first)
    assert finish(steps) is None
    assert made.ledger.reservation(entry.pod.uid) is None


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        (claiming("a", claim("c", labels={"zone": "a"})), ""),
        (claiming("a", claim("c")), "GpuClaim c: admission did not prepare it: spec.nodeSelector lacks zone=a"),
        (claiming("a", claim("c", labels={"zone": "b"})), "spec.nodeSelector lacks zone=a"),
        (
            claiming("a", claim("c", labels={"zone": "a"}), containers=()),
            "GpuClaim c: no container requests a GPU, so admission did not prepare the pod",
        ),
    ],
)
def test_a_pod_that_admission_did_not_prepare_is_held(asks: Pod, why: str) -> None:
    """In both modes: the selector of the claim and the request must be in the pod's spec."""
    made = cluster(claims=(claim("c", labels={"zone": "a"}),))
    made.set_node(node("n0", metadata={"name": "n0", "labels": {"zone": "a"}}))
    if why:
        text = note(made, asks)
        assert text.startswith("PodHeld: ")
        assert why in text
    else:
        assert isinstance(finish(schedule(made, asks)), Scheduled)


def test_a_static_allocation_must_be_for_the_claim() -> None:
    """Otherwise the cards would not be charged as the claim has them."""
    mine = claim("c")
    text = '{"v":1,"node":"n0","containers":{"main":[{"uuid":"GPU-0","index":0,"memoryMiB":1000,"cores":1000}]}}'
    made = cluster(claims=(mine,))
    assert "is not for GpuClaim c" in note(made, claiming("a", mine, annotations={ALLOCATION: text}))
    marked = text.removesuffix("}") + ',"claim":{"name":"c","exclusivity":"Exclusive"}}'
    assert isinstance(finish(schedule(made, claiming("a", mine, annotations={ALLOCATION: marked}))), Scheduled)


# ---- cards -----------------------------------------------------------------------------------------------------------

EXCLUSIVE = claim("exclusive")
SHARED = claim("shared", exclusivity="Shared", memoryMiB=100)
SLOT = claim("slot", exclusivity="Shared")
OTHERS = [
    pod("plain", memory=100),
    pod("whole", containers=[{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]),
    claiming("shared", SHARED),
    claiming("slot", SLOT),
    claiming("other", EXCLUSIVE),
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("cores", [1000, 2000])
def test_an_exclusive_claim_and_another_pod_never_share_a_card(other: Pod, cores: int) -> None:
    """In either order, whatever the other pod requests, and even if the card's compute is scaled."""
    first, second = claiming("first", EXCLUSIVE), claiming("second", EXCLUSIVE)
    made = cluster(Card("GPU-0", 0, 1000, cores=cores), claims=(EXCLUSIVE, SHARED, SLOT))
    placed(made, first)
    result = finish(schedule(made, other))
    assert isinstance(result, Unschedulable)
    made = cluster(Card("GPU-0", 0, 1000, cores=cores), claims=(EXCLUSIVE, SHARED, SLOT))
    placed(made, other)
    text = note(made, second)
    assert "1/1 ExclusiveDeviceAllocateConflict" in text
    assert text.endswith("; an Exclusive GpuClaim gets only cards that no pod uses")


def test_as_many_shared_claims_fit_as_the_card_has_slots() -> None:
    """Ten pods without a memory limit share a card; the eleventh waits."""
    made = cluster(Card("GPU-0", 0, 1000, slots=10), claims=(SLOT,))
    for number in range(10):
        placed(made, claiming(f"p{number}", SLOT))
    assert "1/1 CardTimeSlicingExhausted" in note(made, claiming("p10", SLOT))


def test_all_containers_see_the_cards_of_the_claim_and_each_is_charged_once() -> None:
    """The order of the cards and the way in which CUDA_VISIBLE_DEVICES names them are those of the claim."""
    both = claim("c", count=2)
    made = cluster(claims=(both,))
    result = placed(made, claiming("a", both, containers=("one", "two")))
    assert result.allocation is not None
    assert result.allocation.containers["one"] == result.allocation.containers["two"]
    assert result.allocation.claim is not None
    assert result.allocation.claim.name == "c"
    assert [charge.slots for charge in result.charges] == [1, 1]
    assert result.visible_as == "Index"


@pytest.mark.parametrize(
    ("devices", "profile"),
    [
        ({}, "1g.5gb"),
        ({"memoryMiB": 9000}, "2g.10gb"),
        ({"profile": "3g.20gb"}, "3g.20gb"),
        ({"profile": "2g.10gb", "memoryMiB": 100}, "2g.10gb"),
    ],
)
def test_a_mig_claim_waits_for_an_instance_of_its_profile(devices: dict[str, Any], profile: str) -> None:
    """The smallest that suffices, or of the profile that the claim names; then the pod is placed on it."""
    mine = claim("c", exclusivity="MIG", **devices)
    made = cluster(Card("GPU-n0-5", 5, 40960), mig_card(0, by="agent"), claims=(mine,))
    asks = claiming("a", mine)
    made.set_pod(asks)
    result = finish(schedule(made, asks))
    assert isinstance(result, Unschedulable)
    assert f"asked node(n0) to make {profile} on card GPU-n0-0" in result.note
    (due,) = made.instance_requests.due()
    (request,) = due.requests
    made.instance_requests.mark_written(due)
    created = instance(0, profile, request.slices.start, request_id=request.id)
    cards = (Card("GPU-n0-5", 5, 40960), mig_card(0, by="agent"), created)
    status = status_of(NodeInventory("n0", cards))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0", resource_version="2"), status, Spec("n0", (request,))))
    chosen = placed(made, asks)
    assert chosen.allocation is not None
    assert [share.uuid for share in chosen.allocation.containers["main"]] == [created.uuid]


@pytest.mark.parametrize(
    ("devices", "counts", "hint"),
    [
        ({}, "2/2 ModeNotFit", "an Exclusive or Shared GpuClaim gets no card in MIG mode"),
        ({"exclusivity": "Shared"}, "2/2 ModeNotFit", "an Exclusive or Shared GpuClaim gets no card in MIG mode"),
        (
            {"exclusivity": "MIG", "profile": "3g.20gb"},
            "1/2 CardMigTopologyInfeasible, 1/2 CardTypeMismatch",
            "a MIG GpuClaim gets only MIG instances of profile 3g.20gb",
        ),
    ],
)
def test_a_claim_gets_no_card_of_another_kind(devices: dict[str, Any], counts: str, hint: str) -> None:
    """The reason and the hint say which kind it gets."""
    mine = claim("c", **devices)
    made = cluster(mig_card(0), instance(0, "1g.5gb", 0), claims=(mine,))
    text = note(made, claiming("a", mine))
    assert counts in text
    assert text.endswith(f"; {hint}")


def test_a_mig_claim_gets_no_undivided_card() -> None:
    """Even if the whole cluster has no card in MIG mode."""
    mine = claim("c", exclusivity="MIG")
    text = note(cluster(claims=(mine,)), claiming("a", mine))
    assert "2/2 ModeNotFit" in text
    assert text.endswith("; a MIG GpuClaim gets only MIG instances")


def test_a_claim_for_more_memory_than_any_card_has_is_explained() -> None:
    """The hint names the claim, not a container."""
    mine = claim("c", exclusivity="Shared", memoryMiB=5000)
    text = note(cluster(claims=(mine,)), claiming("a", mine))
    assert text.endswith("; the GpuClaim asks for 5000 MiB of one card; the largest card in this cluster has 1000 MiB")


def test_containers_that_share_a_claim_need_a_node_whose_kubelet_counts_no_devices() -> None:
    """It counts one for each container, of a card that has as many as it has slots, and they are charged one slot."""
    made = cluster(claims=(SHARED,))
    reported = status_of(NodeInventory("n0", (Card("GPU-0", 0, 1000),)))
    reported.delivery = NodeDelivery("device-plugin", is_registered=True)
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n0", resource_version="2"), reported, Spec("n0")))
    text = note(made, claiming("a", SHARED, containers=("one", "two")))
    assert "DevicePluginMismatch: its kubelet counts each container by itself" in text
    placed(made, claiming("b", SHARED))


def test_containers_that_share_a_claim_need_a_node_without_hamis_plugin() -> None:
    """The plugin would give each container all that is charged once; one container, and exclusive cards, are fine."""
    made = state()
    cards = '[{"id":"GPU-n0-0","count":10,"devmem":1000,"devcore":100,"type":"x","health":true}]'
    plenty = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "10"}
    metadata = {"name": "n0", "annotations": {HAMI_REGISTER: cards}}
    made.set_node(node("n0", metadata=metadata, status={"allocatable": plenty}))
    for each in (SHARED, EXCLUSIVE):
        made.set_claim(each)
    two = ("one", "two")
    text = note(made, claiming("a", SHARED, containers=two))
    assert "SharedClaimNotLimitable: HAMi's device plugin limits each container by itself" in text
    placed(made, claiming("b", SHARED))
    text = note(made, claiming("a", SHARED, containers=two))  # the ranking of equal amounts exists now
    assert "SharedClaimNotLimitable" in text
    made.drop_pod(pod("b"))
    placed(made, claiming("c", EXCLUSIVE, containers=two))
