"""Compute in TFLOPs: what is requested is charged exactly, and cores and TFLOPs are two measures of one thing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.inventory import NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement.placement import Placement
from allocation.quota import Headroom
from allocation.request import ContainerRequest, Kind
from tests.allocation.support.builders import card, container, mixed, pod, put, reasons
from tests.allocation.support.mig_cards import instance, mig_card

A100 = 312


def one_card(tflops: int = A100, **changes: object) -> Ledger:
    """Return a ledger of one card with `tflops`."""
    return mixed(card(0, tflops=tflops, memory_mib=10_000, **changes))


def free(ledger: Ledger) -> tuple[int, int]:
    """Return the free millicards and thousandths of TFLOPs of the first card."""
    _, cores, _, tflops = ledger.free(0, 0)
    return cores, tflops


def test_three_thirds_of_a_card_fit() -> None:
    """3 × 104 of 312: in cores each is a little less than a third, and rounding takes nothing from the last one."""
    ledger = one_card()
    for _ in range(3):
        assert isinstance(put(ledger, pod(container(memory=1, tflops=104))), Placement)
    assert free(ledger) == (1, 0)
    assert reasons(put(ledger, pod(container(memory=1, tflops=1)))) == "1/1 CardInsufficientTflops"


def test_a_percentage_takes_its_tflops() -> None:
    """50 % of an A100 are 156 TFLOPs."""
    ledger = one_card()
    put(ledger, pod(container(memory=1, cores=500)))
    assert free(ledger) == (500, 156_000)
    assert reasons(put(ledger, pod(container(memory=1, tflops=157)))) == "1/1 CardInsufficientTflops"
    assert isinstance(put(ledger, pod(container(memory=1, tflops=156))), Placement)


def test_what_rounding_leaves_in_cores_is_not_given_away() -> None:
    """Two thirds are 666 millicards and a fraction: the card has 104 TFLOPs left, and 334 millicards are more."""
    ledger = one_card()
    for _ in range(2):
        put(ledger, pod(container(memory=1, tflops=104)))
    assert free(ledger) == (334, 104_000)
    assert reasons(put(ledger, pod(container(memory=1, cores=334)))) == "1/1 CardInsufficientCore"
    assert isinstance(put(ledger, pod(container(memory=1, cores=333))), Placement)


def test_a_model_that_is_not_known_fits_no_request_for_tflops() -> None:
    """No other pod could change that; percentages fit as ever."""
    ledger = one_card(tflops=0)
    outcome = put(ledger, pod(container(memory=1, tflops=1)))
    assert reasons(outcome) == "1/1 CardInsufficientTflops"
    assert not outcome.rejections["n0"].resolvable
    assert isinstance(put(ledger, pod(container(memory=1, cores=1000))), Placement)
    assert free(ledger) == (0, 0)


def test_pods_that_end_could_make_room_for_tflops() -> None:
    """Unlike on a card that has too few at all."""
    ledger = one_card()
    put(ledger, pod(container(memory=1, tflops=300)))
    assert put(ledger, pod(container(memory=1, tflops=100))).rejections["n0"].resolvable
    assert not put(ledger, pod(container(memory=1, tflops=313))).rejections["n0"].resolvable


def test_all_tflops_are_the_card_alone() -> None:
    """As 100 % are: not even a pod that requests no compute shares it."""
    ledger = one_card()
    put(ledger, pod(container(memory=1)))
    assert reasons(put(ledger, pod(container(memory=1, tflops=A100)))) == "1/1 ExclusiveDeviceAllocateConflict"


def test_a_container_gets_at_most_the_tflops_of_a_whole_card() -> None:
    """Also where cores are scaled, so that several containers together may have twice as many."""
    ledger = one_card(cores=2000)
    outcome = put(ledger, pod(container(memory=1, tflops=A100 + 1)))
    assert reasons(outcome) == "1/1 CardInsufficientTflops"
    assert not outcome.rejections["n0"].resolvable
    for _ in range(2):
        assert isinstance(put(ledger, pod(container(memory=1, tflops=A100))), Placement)
    assert free(ledger) == (0, 0)


def test_tflops_below_a_millicard_are_compute_all_the_same() -> None:
    """1 TFLOP of 2,250 is less than a millicard: the card has compute left for it, and its limit is 1 %, not none."""
    ledger = one_card(tflops=2250)
    outcome = put(ledger, pod(container(memory=1, tflops=1)))
    assert isinstance(outcome, Placement)
    (share,) = outcome.allocation.containers["main"]
    assert (share.cores, share.tflops, share.cores_percent) == (0, 1000, 1)


def test_containers_of_one_pod_may_use_both_measures() -> None:
    """Init containers run alone: the larger of both steps is charged, in each measure."""
    ledger = one_card()
    containers = (
        container("first", Kind.INIT, memory=1, cores=500),
        container("a", memory=1, tflops=104),
        container("b", memory=1, cores=100),
    )
    outcome = put(ledger, pod(*containers))
    assert isinstance(outcome, Placement)
    assert outcome.charges == (Charge("GPU-n0-0", 2, 500, 2, tflops=156_000),)
    assert free(ledger) == (500, 156_000)


def test_what_rounding_leaves_is_not_given_to_another_container_of_the_pod() -> None:
    """Each would fit by itself, and by their cores both would."""
    two = container("a", memory=1, tflops=208), container("b", memory=1, cores=334)
    assert reasons(put(one_card(), pod(*two))) == "1/1 CardInsufficientCore"
    assert isinstance(put(one_card(), pod(two[0], container("b", memory=1, cores=333))), Placement)


def test_an_instance_is_charged_whole() -> None:
    """A seventh of the compute of an A100 is enough for 40 TFLOPs, and counts with all that it has."""
    small = instance(0, "1g.5gb", 0)
    ledger = mixed(mig_card(0), msgspec.structs.replace(small, tflops=A100))
    outcome = put(ledger, pod(container(memory=100, tflops=40)))
    assert isinstance(outcome, Placement)
    (share,) = outcome.allocation.containers["main"]
    assert (share.cores, share.tflops) == (small.cores, small.cores * A100)
    assert reasons(put(ledger, pod(container(memory=100, tflops=45)))).startswith("1/2 CardInsufficientTflops")


@pytest.mark.parametrize(
    ("headroom", "request_", "fits"),
    [
        (Headroom(tflops=93_600), container(memory=1, cores=300), True),
        (Headroom(tflops=93_599), container(memory=1, cores=300), False),
        (Headroom(tflops=104_000), container(memory=1, tflops=104), True),
        (Headroom(tflops=103_999), container(memory=1, tflops=104), False),
        (Headroom(cores=333), container(memory=1, tflops=104), True),
        (Headroom(cores=332), container(memory=1, tflops=104), False),
    ],
)
def test_quotas_count_both_measures(headroom: Headroom, request_: ContainerRequest, *, fits: bool) -> None:
    """A quota of TFLOPs limits percentages, and one of cores limits TFLOPs, by what they are on the card."""
    outcome = put(one_card(), pod(request_), headroom=headroom)
    assert isinstance(outcome, Placement) if fits else reasons(outcome) == "1/1 ResourceQuotaNotFit"


def test_the_tflops_of_a_pod_follow_the_report_of_its_card() -> None:
    """Followers of the ledger see the change, so that sums stay those of the reservations."""
    ledger, sums = mixed(card(0)), [0]
    ledger.follow(lambda reservation, sign: sums.__setitem__(0, sums[0] + sign * reservation.tflops))
    ledger.record("a", "n0", (Charge("GPU-n0-0", 1, 500, 1),))
    assert sums == [0]
    ledger.set_node(NodeInventory("n0", (card(0, tflops=A100),)))
    assert sums == [156_000]
    assert ledger.difference("n0") == ""
    ledger.release("a")
    assert sums == [0]


COMPUTE = st.one_of(
    st.builds(container, memory=st.just(1), tflops=st.integers(1, 400), count=st.integers(1, 2)),
    st.builds(container, memory=st.just(1), cores=st.integers(1, 1000), count=st.integers(1, 2)),
)


@given(
    st.lists(st.tuples(st.integers(1, 2500), st.sampled_from([300, 1000, 2000])), min_size=1, max_size=3),
    st.lists(COMPUTE, max_size=20),
)
def test_no_measure_passes_its_total(cards: list[tuple[int, int]], requests: list[ContainerRequest]) -> None:
    """Whatever pods request in which measure, and whatever else of the card than a whole one there is."""
    made = enumerate(cards)
    ledger = mixed(*(card(at, tflops=tflops, cores=cores, slots=50) for at, (tflops, cores) in made))
    for each in requests:
        put(ledger, pod(each))
        assert (ledger.used <= ledger.total).all()
    assert ledger.difference("n0") == ""
