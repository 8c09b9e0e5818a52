"""Allocations from their request to their end."""

from __future__ import annotations

import pytest

from allocation.adjustment import Amounts, ScalingQuotaExceededError
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec, SingleQuota, TotalQuota
from allocation.gpuallocator.allocator import CLEAN_UP_CHECK_INTERVAL, GpuAllocator
from allocation.gpuallocator.choice import NotReadyError
from allocation.gpuallocator.filters import NoCardsError
from allocation.gpuallocator.lifecycle import ASSUMED_TTL_SECONDS, MOST_FREED
from allocation.gpuallocator.quota_store import QuotaExceededError
from allocation.gpuallocator.requests import AllocRequest, PodMeta
from allocation.gpuallocator.stores import SinkConflictError, SinkError, SinkNotFoundError
from tests.allocation.support.gpu_allocator import GIB, Surroundings, allocator, card, inventory, request


def free(made: GpuAllocator, name: str) -> tuple[int, int]:
    """Return the available GiB and millicards of a card."""
    available = made.get_allocation_info()[0][name].available
    return available.memory_mib // GIB, available.cores


def test_alloc_chooses_one_node_and_tells_the_handlers() -> None:
    """By filter, strategy and bind."""
    made, _ = allocator()
    bound: list[AllocRequest] = []
    made.register_bind_handler(bound.append)
    gpus = made.alloc(request(count=2))
    assert [gpu.name for gpu in gpus] == ["a-0", "a-1"]
    assert [each.gpu_names for each in bound] == [("a-0", "a-1")]
    assert free(made, "a-0") == free(made, "a-1") == (70, 900)
    assert (made.is_committed("uid-x"), made.has_allocation("ns", "x")) == (True, True)
    assert made.get_allocation_req_by_node_name("a") == tuple(bound)
    assert made.list_non_using_nodes() == ("b",)
    assert made.get_node_worker_store_snapshot() == {"a": {"uid-x"}, "b": set()}


def test_bind_is_all_or_nothing() -> None:
    """The second of two cards is short, and the first is as it was."""
    made, _ = allocator(1)
    made.bind(["a-1"], request("first", memory=75 * GIB))
    before = made.get_allocation_info()
    with pytest.raises(AllocationError, match="card a-1 on node a has"):
        made.bind(["a-0", "a-1"], request(count=2))
    assert made.get_allocation_info() == before
    assert made.get_quota_store().used("ns").cards == 1
    assert made.bind(["a-0"], request())[0].running == ("uid-x",)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no cards are named for pod uid-x"),
        (["a-0"], "requests 2 different cards, not a-0"),
        (["a-0", "a-0"], "requests 2 different cards"),
        (["a-0", "z-0"], "no node has card z-0"),
        (["a-0", "b-0"], "are on several nodes: a, b"),
    ],
)
def test_names_that_cannot_be_are_refused(names: list[str], message: str) -> None:
    """Nothing is changed."""
    made, _ = allocator()
    with pytest.raises(AllocationError, match=message):
        made.assume(names, request(count=2))
    assert made.lifecycle.assumed == {}


def test_assumption_counts_until_it_is_dropped() -> None:
    """It is in every view of the cards, and its status is not written."""
    made, around = allocator(1)
    made.sync_gpus_to_k8s()
    around.written.clear()
    made.assume(["a-0"], request())
    assert free(made, "a-0") == (70, 900)
    assert not made.is_committed("uid-x")
    made.sync_gpus_to_k8s()
    assert around.written == {}
    with pytest.raises(AllocationError, match="pod uid-x is already assumed"):
        made.assume(["a-1"], request())
    made.forget("uid-x")
    made.forget("uid-x")
    assert free(made, "a-0") == (80, 1000)
    assert made.get_quota_store().used("ns").cards == 0
    with pytest.raises(AllocationError, match="pod uid-x is not assumed"):
        made.commit("uid-x")


def test_commit_twice_is_once_and_rollback_undoes_it() -> None:
    """`unreserve_or_rollback` does whichever is right, and does it again for nothing."""
    made, _ = allocator(1)
    made.assume(["a-0"], request())
    assert made.commit("uid-x") == made.commit("uid-x") == ("a-0",)
    with pytest.raises(AllocationError, match="pod uid-x is already allocated"):
        made.assume(["a-1"], request())
    made.rollback("uid-x")
    made.rollback("uid-x")
    assert free(made, "a-0") == (80, 1000)
    assert not made.has_allocation("ns", "x")
    for commits in (True, False):
        made.assume(["a-0"], request())
        if commits:
            made.commit("uid-x")
        made.unreserve_or_rollback("uid-x")
        made.unreserve_or_rollback("uid-x")
        assert free(made, "a-0") == (80, 1000)


def test_failed_commit_leaves_nothing() -> None:
    """The card went away between the two."""
    made, _ = allocator(1)
    made.assume(["a-1"], request())
    made.set_node(inventory("a", card("a", 0)), {"pool": "p"})
    with pytest.raises(AllocationError, match="its cards a-1 are gone"):
        made.commit("uid-x")
    assert made.lifecycle.assumed == made.lifecycle.allocated == {}
    assert list(made.ledger.reservations()) == []


def test_assumptions_end_after_half_an_hour_but_for_gangs() -> None:
    """Not a second earlier; what is committed stays."""
    made, around = allocator(1)
    waiting = {"uid-gang"}
    made.set_gang_waiting_probe(waiting.__contains__)
    for name in ("x", "gang", "done"):
        made.assume(["a-0"], request(name))
    made.commit("uid-done")
    around.now = ASSUMED_TTL_SECONDS - 1
    assert made.sweep_assumed() == ()
    around.now = ASSUMED_TTL_SECONDS
    assert made.sweep_assumed() == ("uid-x",)
    assert set(made.lifecycle.assumed) == {"uid-gang"}
    waiting.clear()
    assert made.sweep_assumed() == ("uid-gang",)
    assert free(made, "a-0") == (70, 900)


def test_dealloc_twice_is_once() -> None:
    """What is unknown changes nothing, and pods of the same name or namespace keep what they have."""
    made, _ = allocator(1)
    made.bind(["a-0"], request("x"))
    made.bind(["a-0"], request("y", memory=20 * GIB))
    made.bind(["a-0"], request(pod=PodMeta("uid-other", "other", "x")))
    assert made.dealloc("uid-unknown") is False
    assert made.dealloc("uid-x") is True
    assert made.dealloc("uid-x") is False
    assert free(made, "a-0") == (50, 800)
    assert made.get_allocation_info()[0]["a-0"].running == ("uid-other", "uid-y")
    assert made.dealloc_by_pod_identifier("ns", "x") is False
    assert made.dealloc_by_pod_identifier("ns", "y") is True
    assert free(made, "a-0") == (70, 900)


def test_ended_pods_do_not_come_back_and_are_forgotten_in_the_end() -> None:
    """A late event of one changes nothing; a new assumption removes the mark; the marks are bounded."""
    made, _ = allocator(1)
    made.bind(["a-0"], request("x"))
    running = [(made.lifecycle.allocated["uid-x"], "a")]
    made.dealloc("uid-x")
    made.reconcile_allocation_state(running)
    assert not made.is_committed("uid-x")
    made.bind(["a-0"], request("x"))
    assert not made.lifecycle.was_freed("uid-x")
    made.dealloc("uid-x")
    for number in range(MOST_FREED):
        made.bind(["a-0"], request(str(number)))
        made.dealloc(f"uid-{number}")
    assert not made.lifecycle.was_freed("uid-x")
    assert len(made.lifecycle._freed) == MOST_FREED


def test_what_pods_had_is_freed_when_the_api_has_them_no_more() -> None:
    """At once for those that were asked for, and every three minutes for all."""
    made, around = allocator(1)
    for name in ("x", "y", "z"):
        made.bind(["a-0"], request(name))
    made.dealloc_async("uid-x")
    made.dealloc_async("uid-unknown")
    around.gone = {"uid-y"}
    assert made.poll_ending() == ()
    around.gone = {"uid-x", "uid-y"}
    assert made.poll_ending() == ("uid-x",)
    assert made.clean_up() == ("uid-y",)
    assert set(made.lifecycle.allocated) == {"uid-z"}
    assert CLEAN_UP_CHECK_INTERVAL == 180


def test_status_is_written_until_it_is_taken() -> None:
    """A conflict writes again, a failure later, and a card that is gone never."""
    made, around = allocator(1)
    assert made.sync_gpus_to_k8s() == 2
    assert made.sync_gpus_to_k8s() == 0
    made.bind(["a-0"], request())
    around.failures = [SinkConflictError(), SinkConflictError()]
    assert made.sync_gpus_to_k8s() == 1
    assert around.written["a-0"].available == Amounts(70 * GIB, 900)
    assert around.written["a-0"].running == ("uid-x",)
    made.dealloc("uid-x")
    around.failures = [SinkError()]
    assert made.sync_gpus_to_k8s() == 0
    around.failures = [SinkConflictError()] * 5
    assert made.sync_gpus_to_k8s() == 0
    assert made.sync_gpus_to_k8s() == 1
    assert around.written["a-0"].running == ()
    made.bind(["a-1"], request())
    around.failures = [SinkNotFoundError()]
    assert made.sync_gpus_to_k8s() == made.sync_gpus_to_k8s() == 0
    made.dealloc("uid-x")
    made.drop_node("a")
    assert made.sync_gpus_to_k8s() == 0


def test_capacity_changes_and_use_stays() -> None:
    """Whatever the report says; a node that comes back has its pods."""
    made, _ = allocator(1)
    set_node, drop_node = made.start_informer_for_gpu()
    made.bind(["a-0"], request())
    set_node(inventory("a", card("a", 0, memory_mib=100 * GIB), card("a", 1)), {"pool": "p"})
    assert free(made, "a-0") == (90, 900)
    drop_node("a")
    assert made.get_node_gpu_store() == {}
    set_node(inventory("a", card("a", 0)), {"pool": "p"})
    assert free(made, "a-0") == (70, 900)


def test_restart_reads_what_pods_have() -> None:
    """Also whole cards; what others had is freed, and an assumption of a pod that runs becomes its allocation."""
    made, _ = allocator(1)
    made.bind(["a-0"], request("soft", memory=5 * GIB))
    made.bind(["a-1"], request("whole", isolation="shared"))
    running = [(each, "a") for each in made.lifecycle.allocated.values()]
    again, _ = allocator(1)
    again.bind(["a-0"], request("stale"))
    again.assume(["a-0"], request("soft", memory=5 * GIB))
    again.reconcile_allocation_state(running)
    assert again.get_allocation_info() == made.get_allocation_info()
    assert again.lifecycle.assumed == {}
    assert free(again, "a-1") == (0, 0)
    assert again.get_quota_store().used("ns") == made.get_quota_store().used("ns")


def test_whole_card_needs_an_idle_one() -> None:
    """No other pod shares it."""
    made, _ = allocator(1)
    made.bind(["a-0"], request("x", memory=1, cores=1))
    whole = request("whole", isolation="shared")
    with pytest.raises(AllocationError, match="is in use, so it cannot be given whole"):
        made.bind(["a-0"], whole)
    assert made.alloc(whole)[0].name == "a-1"
    with pytest.raises(AllocationError):
        made.bind(["a-1"], request("y", memory=1, cores=0))


def test_calls_wait_until_ready() -> None:
    """By the function that is given, or not at all."""
    around = Surroundings()
    made = GpuAllocator(clock=lambda: 0.0, pods=around, sink=around, pools={})
    with pytest.raises(NotReadyError):
        made.check_quota_and_filter(request())
    waits: list[int] = []

    def wait() -> None:
        waits.append(1)
        if len(waits) == 3:
            patient.set_allocator_ready()

    patient = GpuAllocator(clock=lambda: 0.0, pods=around, sink=around, pools={"p": ()}, wait=wait)
    with pytest.raises(NoCardsError, match="pool p has no cards"):
        patient.check_quota_and_filter(request())
    assert (len(waits), patient.is_ready) == (3, True)
    patient.stop()
    with pytest.raises(NotReadyError):
        patient.alloc(request())
    patient.set_allocator_ready()
    with pytest.raises(AllocationError, match="names no pool"):
        patient.check_quota_and_filter(AllocRequest(request().pod, ""))


def test_most_pods_of_a_node() -> None:
    """The third goes elsewhere, a pod too many is an error, and the number changes while pods run."""
    made, _ = allocator(mode="CompactFirst")
    made.set_max_worker_per_node(2)
    assert [made.alloc(request(str(number)))[0].node for number in range(4)] == ["a", "a", "b", "b"]
    with pytest.raises(NoCardsError, match="each node with cards that fit pod uid-x has 2 pods already"):
        made.alloc(request())
    with pytest.raises(AllocationError, match="node a has 2 pods with cards, the most that it may"):
        made.assume(["a-0"], request())
    made.set_max_worker_per_node(3)
    assert made.max_worker_per_node == 3
    assert made.alloc(request())[0].node == "a"


def test_another_size_by_the_vector() -> None:
    """Half a card of 20 GiB: too much changes nothing and says what is left; more and less move both."""
    made, _ = allocator(1, cards=1)
    made.set_node(inventory("a", card("a", 0, memory_mib=100 * GIB)), {"pool": "p"})
    made.bind(["a-0"], request(memory=10 * GIB, cores=500))
    before = made.get_allocation_info()
    with pytest.raises(ScalingQuotaExceededError) as caught:
        made.adjust_allocation("uid-x", Amounts(300 * GIB, 500), Amounts(300 * GIB, 500), dry_run=True)
    assert caught.value.remaining == {"a-0": Amounts(90 * GIB, 500)}
    assert made.is_scaling_quota_exceeded_error(caught.value)
    remaining, more, _ = made.adjust_allocation("uid-x", Amounts(15 * GIB, 900), Amounts(15 * GIB, 900), dry_run=True)
    assert (remaining, more) == ({"a-0": Amounts(85 * GIB, 100)}, Amounts(5 * GIB, 400))
    assert made.get_allocation_info() == before
    made.adjust_allocation("uid-x", Amounts(15 * GIB, 900), Amounts(15 * GIB, 900))
    assert free(made, "a-0") == (85, 100)
    _, less, _ = made.adjust_allocation("uid-x", Amounts(GIB, 100), Amounts(GIB, 100))
    assert less == Amounts(-14 * GIB, -800)
    assert free(made, "a-0") == (99, 900)
    with pytest.raises(AllocationError, match="pod uid-unknown is not allocated"):
        made.adjust_allocation("uid-unknown", Amounts(), Amounts())


def test_another_size_in_tflops() -> None:
    """TensorFusion's vector: 50 TFLOPs and 10 GiB of a card; 300 are too many, 90 and 15 GiB fit, then 10 and 1 GiB."""

    def size(tflops: int, memory: int) -> Amounts:
        return Amounts(memory * GIB, tflops=tflops * 1000)

    made, _ = allocator(0)
    made.setup_with_manager([(inventory("a", card("a", 0, memory_mib=100 * GIB, tflops=100)), {"pool": "p"})], [])
    made.alloc(request(memory=10 * GIB, cores=0, tflops=50_000))
    available = Amounts(90 * GIB, 500, 50_000)
    with pytest.raises(ScalingQuotaExceededError) as caught:
        made.adjust_allocation("uid-x", size(300, 10), size(300, 10), dry_run=True)
    assert caught.value.remaining == {"a-0": available}
    assert "which would need 10240 MiB and 300 % of a card's cores (300 TFLOPs)" in str(caught.value)
    remaining, more, _ = made.adjust_allocation("uid-x", size(90, 15), size(90, 15))
    assert (remaining, more) == ({"a-0": available - Amounts(5 * GIB, 400, 40_000)}, size(40, 5))
    remaining, less, _ = made.adjust_allocation("uid-x", size(10, 1), size(10, 1))
    assert (remaining["a-0"], less) == (available + Amounts(9 * GIB, 400, 40_000), size(-80, -14))
    with pytest.raises(AllocationError, match="leave out one of the measures"):
        made.adjust_allocation("uid-x", Amounts(GIB, 100, 10_000), size(10, 1))


def test_a_quota_of_tflops_counts_percentages_of_cards() -> None:
    """As in the scheduler; and the growth of a limit counts in the measure of the quota."""
    made, _ = allocator(0)
    made.setup_with_manager([(inventory("a", card("a", 0, tflops=312), card("a", 1, tflops=312)), {"pool": "p"})], [])
    quotas = made.get_quota_store()
    quotas.set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gputflops": 312})))
    made.alloc(request(cores=250, count=2))
    assert quotas.used("ns").tflops == 156_000
    made.adjust_allocation("uid-x", Amounts(GIB, 500), Amounts(GIB, 500))
    with pytest.raises(ScalingQuotaExceededError, match="limits nvidia.com/gputflops to 312: 0 are left"):
        made.adjust_allocation("uid-x", Amounts(GIB, 500), Amounts(GIB, 510))


def test_the_tflops_of_known_models_need_not_be_said() -> None:
    """A card that says them has others."""
    made, _ = allocator(0)
    model = "NVIDIA A100-SXM4-80GB"
    cards = (card("a", 0, model=model), card("a", 1, model=model, tflops=20), card("a", 2))
    made.setup_with_manager([(inventory("a", *cards), {"pool": "p"})], [])
    gpus = made.get_allocation_info()[0]
    assert [gpus[name].capacity.tflops for name in ("a-0", "a-1", "a-2")] == [312_000, 20_000, 0]
    with pytest.raises(NoCardsError):
        made.alloc(request(cores=0, tflops=313_000))


def test_another_size_counts_for_quotas_times_the_cards() -> None:
    """Growth of the limit alone is checked as well; no further pod is counted."""
    made, _ = allocator(1)
    made.alloc(request(count=2))
    quotas = made.get_quota_store()
    quotas.set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gpumem": 30 * GIB}, max_pods=1)))
    made.adjust_allocation("uid-x", Amounts(15 * GIB, 100), Amounts(15 * GIB, 100))
    assert quotas.used("ns").memory_mib == 30 * GIB
    with pytest.raises(ScalingQuotaExceededError, match="GpuQuota q"):
        made.adjust_allocation("uid-x", Amounts(15 * GIB, 100), Amounts(16 * GIB, 100))
    quotas.set_quota("ns", "q", QuotaSpec(single=SingleQuota({"nvidia.com/gpumem": 16 * GIB})))
    made.adjust_allocation("uid-x", Amounts(15 * GIB, 100), Amounts(16 * GIB, 100))
    with pytest.raises(ScalingQuotaExceededError, match="container main requests 16385 of each card"):
        made.adjust_allocation("uid-x", Amounts(15 * GIB, 100), Amounts(16 * GIB + 1, 100))


@pytest.mark.parametrize(
    ("single", "allowed", "refused"),
    [
        (SingleQuota({"nvidia.com/gpumem": 100}), {"memory": 100}, {"memory": 101}),
        (SingleQuota({"nvidia.com/gpucores": 10}), {"cores": 100}, {"cores": 101}),
        (
            SingleQuota({"nvidia.com/gpumem": 100}),
            {"memory": 1, "limit": Amounts(100)},
            {"memory": 1, "limit": Amounts(101)},
        ),
        (SingleQuota(max_cards=2), {"count": 2}, {"count": 3}),
        (SingleQuota(max_cards=0), {}, {"count": 1}),
    ],
)
def test_limits_of_a_single_pod_help_no_preemption(
    single: SingleQuota, allowed: dict[str, int], refused: dict[str, int]
) -> None:
    """At the limit it passes, one more is refused."""
    quotas = allocator()[0].get_quota_store()
    if allowed:
        quotas.set_quota("ns", "q", QuotaSpec(single=single))
        quotas.check(request(**allowed))  # type: ignore[arg-type]
    quotas.set_quota("ns", "q", QuotaSpec(single=single))
    with pytest.raises(QuotaExceededError, match="GpuQuota q: spec.single") as caught:
        quotas.check(request(**refused))  # type: ignore[arg-type]
    assert caught.value.unresolvable


def test_totals_count_each_card_and_assumed_pods() -> None:
    """Half a percent of two cards is one percent exactly; 0 allows nothing, a missing limit everything."""
    made, _ = allocator(1)
    quotas = made.get_quota_store()
    quotas.set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gpucores": 1}, max_pods=2)))
    made.assume(["a-0", "a-1"], request("x", memory=0, cores=5, count=2))
    with pytest.raises(QuotaExceededError, match="GpuQuota q limits nvidia.com/gpucores to 1: 1 used") as caught:
        made.assume(["a-0"], request("y", cores=1))
    assert not caught.value.unresolvable
    made.assume(["a-0"], request("y", cores=0))
    with pytest.raises(QuotaExceededError, match="GpuQuota q limits the pods of namespace ns to 2: 2 run"):
        made.alloc(request("z", cores=0))
    made.forget("uid-x")
    made.alloc(request("z", cores=0))
    quotas.set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gpu": 0})))
    with pytest.raises(QuotaExceededError) as caught:  # before the pool is read
        made.check_quota_and_filter(request("w", pool="unknown"))
    assert str(caught.value) == "GpuQuota q limits nvidia.com/gpu to 0: 2 used, 1 requested"
    quotas.set_quota("ns", "q", None)
    made.alloc(request("w"))


def test_whole_cards_count_for_quotas_with_all_that_they_have() -> None:
    """What a pod writes for them does not matter."""
    made, _ = allocator(1)
    made.get_quota_store().set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gpumem": 100 * GIB})))
    made.alloc(request("x", isolation="shared", memory=1))
    assert made.get_quota_store().used("ns").memory_mib == 80 * GIB
    with pytest.raises(QuotaExceededError):
        made.alloc(request("y", isolation="shared", memory=1))


def test_oversubscription_is_shown_and_not_placed_by() -> None:
    """Memory by half and 70 percent more, compute five times; limits count for each card."""
    made, _ = allocator(1)
    made.bind(["a-0", "a-1"], request(memory=10 * GIB, cores=100, limit=Amounts(20 * GIB, 300), count=2))
    shown = made.refresh_gpu_node_capacity("a")
    assert shown is not None
    assert (shown.total, shown.available) == (Amounts(160 * GIB, 2000), Amounts(140 * GIB, 1800))
    assert shown.virtual == Amounts(352 * GIB, 10_000)
    assert shown.virtual_available == Amounts(312 * GIB, 9_400)
    assert (shown.pods, shown.models) == (1, ("A100",))
    with pytest.raises(NoCardsError):
        made.check_quota_and_filter(request("y", memory=71 * GIB))
    assert made.refresh_gpu_node_capacity("unknown") is None
