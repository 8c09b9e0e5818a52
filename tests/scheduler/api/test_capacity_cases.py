"""Capacity beside bindings, gangs, volumes, MIG, Leases and closed nodes, and what it leaves out."""

from collections.abc import Callable

import msgspec
import pytest

from allocation.allocation import Charge
from allocation.inventory import NodeInventory
from allocation.ledger.card_table import MEMORY
from allocation.ledger.ledger import LEASE_PREFIX
from allocation.ledger.ledger_copy import used_by_pods
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.api import capacity, capacity_shapes, capacity_slice, capacity_stranded
from scheduler.api.capacity_types import LargestSlice
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.holds import Hold
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.api.test_capacity import counted, running, slice_of, without_changes
from tests.scheduler.support.app_pods import app_pod, gpu_binding, settings
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.claims import claim
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.storage import claim as volume_claim
from tests.scheduler.support.storage import mounts, storage_class, volume


def bound_site() -> ClusterState:
    """Return two cards, each with room for many pods, that are bound to one application."""
    made = state("n1", settings=settings())
    for card in range(2):
        made.bindings.set(gpu_binding(f"b{card}", f"GPU-n1-{card}"))
    return made


def test_pods_of_an_application_use_up_its_cards() -> None:
    """Each copy has one that no other pod of the application has; afterwards the application has no pods again."""
    made = bound_site()
    before = without_changes(made)
    assert counted(made, app_pod("a", policy="single")).count == 2
    assert without_changes(made) == before
    assert not made.bindings._pods.of_app("comfyui")


def with_a_hold() -> tuple[ClusterState, Pod]:
    """Return a card, part of which is held for a pod that waits, and a shape that takes less of it."""
    made, waits = state("n1", cards=1), pod("waits", memory=700, priority=-5)
    held = (Charge("GPU-n1-0", memory_mib=700, cores=0, slots=1),)
    made.set_pod(waits)
    (entry,) = made.queue
    made.holds.add(Hold(waits.uid, entry.key, made.fair_share.pod_rank(waits), "n1", held, frozenset()), waits)
    return made, pod("a", memory=400, priority=7)


def with_a_volume() -> tuple[ClusterState, Pod]:
    """Return a card, and a shape whose claim takes the only volume."""
    made = state("n1", cards=1)
    made.storage.set_class(storage_class("local"))
    made.storage.set_volume(volume("v", node="n1"))
    made.storage.set_claim(volume_claim("c"))
    return made, pod("a", memory=400, volumes=mounts("c"))


def with_a_peer() -> tuple[ClusterState, Pod]:
    """Return a card that is bound to an application with a pod, and the shape of another one."""
    made = state("n1", cards=1, settings=settings())
    made.bindings.set(gpu_binding("b", "GPU-n1-0"))
    made.set_pod(app_pod("peer", policy="single"))
    return made, app_pod("a", policy="single")


@pytest.mark.parametrize("arrange", [with_a_hold, with_a_volume, with_a_peer])
def test_a_count_wakes_no_pod(arrange: Callable[[], tuple[ClusterState, Pod]], monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the copies take comes back: a pod that is scheduled again for it would find what it found before."""
    made, shape = arrange()
    woken = list[object]()
    monkeypatch.setattr(made.queue, "notify", woken.append)
    monkeypatch.setattr(made.queue, "wake", woken.extend)
    assert counted(made, shape).count > 0
    assert not woken
    assert not made.tried


def test_a_pod_that_no_quota_holds_back_is_not_blamed_on_quotas() -> None:
    """It is held for a field that the scheduler does not evaluate: nothing but its spec is the reason."""
    held = pod("a", memory=100, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    found = counted(state("n1"), held)
    assert (found.count, found.is_exact, found.is_limited_by_quota) == (0, True, False)
    assert "resourceClaims" in found.why


def test_the_assumptions_of_a_count_are_warnings() -> None:
    """After those of admission: the pods of a gang are counted alone, and copies share volumes."""
    made = state("n1")
    of_gang = pod(
        "a", memory=100, labels={"gpu.scheduling/gang": "g"}, annotations={"gpu.scheduling/gang-min-members": "3"}
    )
    mounting = pod("b", memory=100, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    for shape, word in ((of_gang, "gang"), (mounting, "volumes")):
        submitted = SubmittedPod(PlannedPod.of(shape, ()), ("from admission",))
        steps = capacity.count(cycle_of(made), "s", submitted, most=100, is_over=lambda: False)
        first, second = finish(steps).warnings
        assert (first, word in second) == ("from admission", True)
    assert counted(made, pod("c", memory=100)).warnings == ()


def test_two_counts_use_different_uids() -> None:
    """What compares the state at two moments does not take a copy for a pod that stays."""
    made, seen = state("n1"), list[set[str]]()
    for _ in range(2):
        uids = set[str]()
        submitted = SubmittedPod(PlannedPod.of(pod("a", memory=250), ()), ())
        for _ in capacity.count(cycle_of(made), "s", submitted, most=100, is_over=lambda: False):
            uids |= {each.uid for each in made.ledger.reservations()}
        seen.append(uids)
    assert len(seen[0]) == 8
    assert not seen[0] & seen[1]


def test_a_command_counts_in_extender_mode_too() -> None:
    """Only the scheduler itself does not, because kube-scheduler's requests would see the copies."""
    made = state("n1", has_queue=False)
    before = without_changes(made)
    assert counted(made, pod("a", memory=250)).count == 8
    assert without_changes(made) == before


def test_views_of_cards_do_not_show_copies() -> None:
    """Neither the metrics of cards, nor the allocation: both show what pods have."""
    made = state("n1")
    submitted = SubmittedPod(PlannedPod.of(pod("a", memory=250), ()), ())
    most = 0
    for _ in capacity.count(cycle_of(made), "s", submitted, most=100, is_over=lambda: False):
        most = max(most, sum(1 for _ in made.ledger.reservations()))
        assert not any(used_by_pods(made.ledger, "n1")[MEMORY])
    assert most == 8


def test_a_pod_whose_cards_its_amounts_do_not_decide_has_no_largest_slice() -> None:
    """It has bound cards, a GpuClaim or a static allocation; a pod that wants an instance has the largest one."""
    assert finish(capacity_slice.largest(cycle_of(bound_site()), app_pod("a", policy="single"))) is None
    made = state("n1")
    made.set_claim(claim("c"))
    claiming = pod("a", containers=[one_card()], annotations={"gpu.scheduling/claim": "c"})
    assert counted(made, claiming).count
    assert finish(capacity_slice.largest(cycle_of(made), claiming)) is None
    fixed = allocated("a", node="n1", memory=100)
    fixed.spec.node_name = ""
    assert finish(capacity_slice.largest(cycle_of(made), fixed)) is None
    divided = mig_site()
    wants = pod("a", memory=100, annotations={"nvidia.com/vgpu-mode": "mig"})
    assert counted(divided, wants).count == 1
    largest = finish(capacity_slice.largest(cycle_of(divided), wants))
    assert largest is not None
    assert (largest.memory_mib, largest.cores) == (4864, 14)
    assert finish(capacity_slice.largest(cycle_of(made), pod("a"))) is None


def test_the_largest_slice_is_within_quotas() -> None:
    """Within what is left of them, and within what a single pod may have."""
    made = state("n1")
    made.quotas.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 900}}))
    assert finish(capacity_slice.largest(cycle_of(made), pod("a", memory=1))) == LargestSlice(900, 100, "", "n1")
    single = {"limits": {"nvidia.com/gpumem": 700, "nvidia.com/gpucores": 40}}
    made.quotas.set_gpu_quota(gpu_quota("single", single=single))
    assert finish(capacity_slice.largest(cycle_of(made), slice_of(1, 1))) == LargestSlice(700, 40, "", "n1")


def one_card() -> dict[str, object]:
    """Return a container that requests a card."""
    return {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}


def mig_site() -> ClusterState:
    """Return a card in MIG mode with one instance."""
    made = state()
    made.set_node(node("n1"))
    cards = (mig_card(0, node="n1"), instance(0, "1g.5gb", 0, node="n1"))
    made.agent_reports.set(GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", cards))))
    return made


def test_only_cards_that_pods_may_use_are_stranded() -> None:
    """Not those of closed nodes, unhealthy or cordoned ones, nor MIG instances, which one pod has whole."""
    made = state("n1")
    made.set_pod(running("a", node="n1", cores=1000, memory=100, card=0, namespace="team"))
    assert len(finish(capacity_stranded.stranded(made))) == 1
    made.ledger.set_cordon("n1", frozenset({"GPU-n1-0"}))
    assert not finish(capacity_stranded.stranded(made))
    made.ledger.set_cordon("n1", frozenset())
    inventory = made.ledger.inventory("n1")
    assert inventory is not None
    sick, well = inventory.cards
    made.ledger.set_node(NodeInventory("n1", (msgspec.structs.replace(sick, healthy=False), well)))
    assert not finish(capacity_stranded.stranded(made))
    made.ledger.set_node(inventory)
    made.set_pod(pod("uncounted", memory=100, node="n1", phase="Running"))
    assert not finish(capacity_stranded.stranded(made))
    divided = mig_site()
    divided.ledger.record("uid-a", "n1", [Charge("GPU-n1-0/0", 1, 1, 1)])
    uuid = divided.ledger.inventory("n1").cards[1].uuid  # type: ignore[union-attr] -- it is there
    divided.ledger.record("uid-b", "n1", [Charge(uuid, 10, 200, 1, parent="GPU-n1-0")])
    assert not finish(capacity_stranded.stranded(divided))


def test_cards_of_a_closed_node_lack_no_cpu() -> None:
    """They take no pods for another reason."""
    made = state("n1")
    hungry = pod("hungry", node="n1", phase="Running", schedulerName="default-scheduler")
    hungry.spec.containers[0].resources.requests = {"cpu": "64"}
    made.set_pod(hungry)
    assert [each.lacks for each in finish(capacity_stranded.stranded(made))] == ["node"]
    made.set_pod(pod("uncounted", memory=100, node="n1", phase="Running"))
    assert not finish(capacity_stranded.stranded(made))


def test_what_no_pod_has_is_reserved() -> None:
    """A Lease that keeps a card from pods belongs to no queue."""
    made = state("n1")
    made.ledger.record(f"{LEASE_PREFIX}x", "n1", [Charge("GPU-n1-0", 100, 1000, 1)])
    (found,) = finish(capacity_stranded.stranded(made))
    assert [each.queue for each in found.by] == ["reserved"]


def test_only_slices_of_one_card_are_shapes() -> None:
    """No whole card, no exclusive one, no MIG instance, and no card that is gone."""
    made = state("n1", "n2")
    made.set_pod(allocated("whole", node="n1", memory=1000))
    made.ledger.record("uid-b", "n1", [Charge("GPU-n1-1", 100, 0, 1, whole=True)])
    made.ledger.record("uid-c", "n2", [Charge("GPU-gone", 100, 0, 1)])
    made.ledger.record("uid-d", "n2", [Charge("GPU-n2-0", 100, 0, 1, parent="GPU-n2-1")])
    made.ledger.record("uid-e", "n2", [Charge("GPU-n2-0", 50, 0, 1), Charge("GPU-n2-1", 50, 0, 1)])
    made.ledger.record("hold:uid-f", "n2", [Charge("GPU-n2-0", 60, 0, 1)])
    assert [each.name for each in finish(capacity_shapes.standard(made, "default", own_only=False))] == ["whole card"]


def test_questions_about_a_large_cluster_are_answered_in_many_steps() -> None:
    """500 nodes: what is stranded, the largest slice and the shapes are found some nodes at a time."""
    made = state(*(f"n{number:03}" for number in range(500)))
    for number in range(500):
        name = f"n{number:03}"
        made.set_pod(running(f"a{number}", node=name, cores=1000, memory=100, card=0, namespace="team"))
        for card in range(3):
            made.set_pod(running(f"b{number}-{card}", node=name, cores=10, memory=100, card=1, namespace="team"))
    filtering = sum(1 for _ in made.node_filter.filter(pod("a", memory=100)))
    assert sum(1 for _ in capacity_slice.largest(cycle_of(made), pod("a", memory=100))) >= filtering + 500 // 200
    finish(made.workload.prepare())
    assert sum(1 for _ in capacity_stranded.stranded(made)) >= 500 // 100 + 500 // 100
    assert sum(1 for _ in capacity_shapes.standard(made, "default", own_only=False)) >= 2000 // 1000


def test_a_node_that_goes_between_two_steps_is_left_out() -> None:
    """Its row in the ledger may belong to another node by then."""
    made = state(*(f"n{number:03}" for number in range(300)))
    for number in range(300):
        made.set_pod(running(f"a{number}", node=f"n{number:03}", cores=1000, memory=100, card=0, namespace="team"))
    for question in (capacity_stranded.stranded(made), capacity_slice.largest(cycle_of(made), pod("a", memory=1))):
        for step, _ in enumerate(question):
            gone = f"n{299 - step:03}"
            made.agent_reports.drop(status(gone))
            made.drop_node(node(gone))
