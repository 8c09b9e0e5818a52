"""A running pod grows only into what is free on its cards and within its quotas, and shrinks always."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import quota
from allocation.adjustment import (
    Adjustment,
    Amounts,
    Quotas,
    ScalingQuotaExceededError,
    adjust,
    is_scaling_quota_exceeded_error,
    remaining,
)
from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec, SingleQuota
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger, Reservation
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings

SETTINGS = AllocationSettings()
GIB = 1024
MEMORY, CORES = SETTINGS.resources.memory, SETTINGS.resources.cores


def one_card(*charges: Charge, memory_mib: int = 40 * GIB, cards: int = 1) -> Ledger:
    """Return a ledger of a node whose pods p0, p1, … have these charges."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n1", tuple(Card(f"GPU-{index}", index, memory_mib) for index in range(cards))))
    for number, charge in enumerate(charges):
        ledger.record(f"p{number}", "n1", [charge])
    return ledger


def charge(memory_mib: int, cores: int, *, uuid: str = "GPU-0", slots: int = 1, whole: bool = False) -> Charge:
    """Return the charge of a card."""
    return Charge(uuid, memory_mib, cores, slots, whole=whole)


def request(memory_mib: int, cores: int) -> PodRequest:
    """Return what the only container of a pod may use."""
    field = "spec.containers[0]"
    return PodRequest((ContainerRequest("main", Kind.REGULAR, field, 1, memory_mib=memory_mib, cores=cores),))


def resize(
    ledger: Ledger,
    memory_mib: int,
    cores: int,
    *,
    quotas: Quotas = Quotas(),  # noqa: B008 -- frozen
    limit_delta: Amounts | None = None,
    dry_run: bool = False,
    whole: bool = False,
) -> Adjustment:
    """Adjust the pod p0, which has one container with one card."""
    return adjust(
        ledger,
        "p0",
        [charge(memory_mib, cores, whole=whole)],
        request=request(memory_mib, cores),
        settings=SETTINGS,
        quotas=quotas,
        limit_delta=limit_delta,
        dry_run=dry_run,
    )


def free(ledger: Ledger) -> Amounts:
    """Return what is free on the card of p0."""
    return remaining(ledger, "p0")["GPU-0"]


def test_an_unknown_pod_is_an_error() -> None:
    """Neither a pod without cards nor one that is only assumed can be adjusted."""
    ledger = one_card()
    with pytest.raises(AllocationError, match="p0"):
        resize(ledger, 1, 1)
    ledger.assume("p0", "n1", [charge(1, 1)])
    with pytest.raises(AllocationError, match="p0"):
        resize(ledger, 2, 2)


def test_a_dry_run_beyond_the_card_says_what_is_left() -> None:
    """The first vector of AdjustAllocation: the error has what is available, and nothing changes."""
    ledger = one_card(charge(10 * GIB, 500))
    before = ledger.used.copy()
    with pytest.raises(ScalingQuotaExceededError, match="GPU-0") as caught:
        resize(ledger, 10 * GIB, 3000, dry_run=True)
    assert caught.value.remaining == {"GPU-0": Amounts(30 * GIB, 500)}
    assert is_scaling_quota_exceeded_error(caught.value)
    assert (ledger.used == before).all()


def test_what_grows_is_taken_from_the_card() -> None:
    """The second vector: from 10 GiB and 50 % to 15 GiB and 90 %, 5 GiB and 40 % less are available."""
    ledger = one_card(charge(10 * GIB, 500))
    done = resize(ledger, 15 * GIB, 900)
    assert free(ledger) == done.remaining["GPU-0"] == Amounts(25 * GIB, 100)
    assert done.request_delta == done.limit_delta == Amounts(5 * GIB, 400)


def test_what_shrinks_is_given_back() -> None:
    """The third vector: from there to 1 GiB and 10 %, 14 GiB and 80 % more are available."""
    ledger = one_card(charge(15 * GIB, 900))
    done = resize(ledger, 1 * GIB, 100)
    assert free(ledger) == done.remaining["GPU-0"] == Amounts(39 * GIB, 900)
    assert done.request_delta == Amounts(-14 * GIB, -800)


def test_a_dry_run_changes_nothing() -> None:
    """It says what would be left all the same."""
    ledger = one_card(charge(10 * GIB, 500))
    done = resize(ledger, 15 * GIB, 900, dry_run=True)
    assert done.remaining["GPU-0"] == Amounts(25 * GIB, 100)
    assert free(ledger) == Amounts(30 * GIB, 500)


def test_a_pod_shrinks_on_a_card_that_is_over_capacity() -> None:
    """What shrinks always fits, and what grows meanwhile does not."""
    ledger = one_card(charge(30 * GIB, 500), charge(30 * GIB, 100))
    with pytest.raises(ScalingQuotaExceededError):
        resize(ledger, 30 * GIB + 1, 400)
    assert resize(ledger, 20 * GIB, 500).remaining["GPU-0"] == Amounts(-10 * GIB, 400)


def test_a_whole_card_is_compared_with_its_capacity() -> None:
    """Its amounts limit its container only, so what is available stays 0."""
    ledger = one_card(charge(10 * GIB, 500, whole=True))
    assert resize(ledger, 40 * GIB, 1000, whole=True).remaining["GPU-0"] == Amounts(0, 0)
    with pytest.raises(ScalingQuotaExceededError):
        resize(ledger, 40 * GIB + 1, 1000, whole=True)
    assert free(ledger) == Amounts(0, 0)


def test_a_single_pod_is_limited_by_its_new_size() -> None:
    """`single` of a GpuQuota limits the size, not how much it grows."""
    quotas = Quotas({"team": QuotaSpec(single=SingleQuota(limits={MEMORY: 12 * GIB}))})
    ledger = one_card(charge(10 * GIB, 500))
    assert resize(ledger, 12 * GIB, 500, quotas=quotas)
    with pytest.raises(ScalingQuotaExceededError, match="team"):
        resize(ledger, 12 * GIB + 1, 500, quotas=quotas)


def test_totals_limit_what_grows_over_all_cards() -> None:
    """Two cards that grow by 1 GiB each need 2 GiB of the namespace, and no further pod."""
    ledger = one_card(cards=2)
    ledger.record("p0", "n1", [charge(GIB, 100), charge(GIB, 100, uuid="GPU-1")])

    def grow(headroom: quota.Headroom) -> Adjustment:
        charges = [charge(2 * GIB, 100), charge(2 * GIB, 100, uuid="GPU-1")]
        quotas = Quotas(headroom=headroom)
        return adjust(
            ledger, "p0", charges, request=request(2 * GIB, 100), settings=SETTINGS, quotas=quotas, dry_run=True
        )

    full = quota.of_object("GpuQuota", "team", {MEMORY: 4 * GIB, SETTINGS.resources.count: 2}, SETTINGS)
    assert grow(full.less(memory_mib=2 * GIB, cores=0, tflops=0, cards=2)).request_delta == Amounts(2 * GIB, 0)
    with pytest.raises(ScalingQuotaExceededError, match=r"GpuQuota team limits .* 2047 are left, 2048 more"):
        grow(full.less(memory_mib=2 * GIB + 1, cores=0, tflops=0, cards=2))


def test_a_limit_that_grows_alone_is_checked() -> None:
    """Where a container may use more than it requests, its limit counts for the totals even if its request stays."""
    ledger = one_card(charge(GIB, 100))
    headroom = quota.of_object("GpuQuota", "team", {CORES: 50}, SETTINGS).less(
        memory_mib=0, cores=100, tflops=0, cards=1
    )
    grown = Amounts(0, 400)
    assert resize(ledger, GIB, 100, quotas=Quotas(limits=headroom), limit_delta=grown).limit_delta == grown
    with pytest.raises(ScalingQuotaExceededError, match="team"):
        resize(ledger, GIB, 100, quotas=Quotas(limits=headroom), limit_delta=Amounts(0, 401))
    assert resize(ledger, GIB, 100, quotas=Quotas(headroom=headroom), limit_delta=Amounts(0, 401))


def test_a_namespace_beyond_its_quota_can_shrink() -> None:
    """A quota that was lowered does not keep pods from giving something back."""
    headroom = quota.of_object("GpuQuota", "team", {MEMORY: 0}, SETTINGS).less(
        memory_mib=GIB, cores=0, tflops=0, cards=1
    )
    ledger = one_card(charge(GIB, 100))
    assert resize(ledger, 1, 500, quotas=Quotas(headroom=headroom))


def test_a_pod_keeps_its_cards() -> None:
    """Neither other cards, nor another number of them, nor MIG instances can be had by another size."""
    ledger = one_card(charge(GIB, 100), cards=2)
    for charges in ([charge(GIB, 100, uuid="GPU-1")], [], [charge(GIB, 100, slots=2)]):
        with pytest.raises(AllocationError, match="keeps its cards"):
            adjust(ledger, "p0", charges, request=request(GIB, 100), settings=SETTINGS)
    instance = Charge("GPU-0", 1, 1, 1, parent="GPU-1")
    ledger.record("p0", "n1", [instance])
    with pytest.raises(AllocationError, match="MIG instance"):
        adjust(ledger, "p0", [instance], request=request(1, 1), settings=SETTINGS)


def test_a_card_that_its_node_has_lost_is_an_error() -> None:
    """There is nothing that could be compared, and nothing is left of it."""
    ledger = one_card(charge(GIB, 100))
    ledger.set_node(NodeInventory("n1", (Card("GPU-9", 0, GIB),)))
    with pytest.raises(AllocationError, match="does not report card GPU-0"):
        resize(ledger, 1, 1)
    assert free(ledger) == Amounts()


def test_the_error_is_found_behind_others() -> None:
    """A caller may have wrapped it."""
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = ScalingQuotaExceededError("full", {})
    assert is_scaling_quota_exceeded_error(wrapped)
    assert not is_scaling_quota_exceeded_error(RuntimeError("else"))
    assert not is_scaling_quota_exceeded_error(None)


AMOUNTS = st.tuples(st.integers(0, 1200), st.integers(0, 1200))


@given(st.lists(st.tuples(st.sampled_from(["p0", "p1"]), AMOUNTS, st.booleans()), max_size=12))
def test_adjustments_never_exceed_the_card(steps: list[tuple[str, tuple[int, int], bool]]) -> None:
    """Whatever pods ask for, the card is never over its capacity, and a refusal or a dry run changes nothing."""
    ledger = one_card(charge(300, 300), charge(400, 400), memory_mib=1000)
    for uid, (memory, cores), dry_run in steps:
        before, was_free = ledger.snapshot(), remaining(ledger, uid)
        wanted, left = [charge(memory, cores)], {}
        try:
            size = request(memory, cores)
            done = adjust(ledger, uid, wanted, request=size, settings=SETTINGS, dry_run=dry_run)
        except ScalingQuotaExceededError as error:
            left, is_refused = dict(error.remaining), True
        else:
            left, is_refused = dict(done.remaining), False
        had, most = charged(before, uid), was_free["GPU-0"]
        assert is_refused == (memory > had.memory_mib + most.memory_mib or cores > had.cores + most.cores)
        assert left == (was_free if is_refused else left if dry_run else remaining(ledger, uid))
        assert not (is_refused or dry_run) or ledger.snapshot() == before
        assert min(free(ledger).memory_mib, free(ledger).cores) >= 0
        assert ledger.difference("n1") == ""


def charged(reservations: dict[str, Reservation], uid: str) -> Charge:
    """Return what a pod was charged of its only card."""
    return reservations[uid].charges[0]
