"""Dominant shares and entitlements, in examples, and their exactness."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness import shares
from allocation.fairness.shares import NOTHING, OF_CARDS, Amounts, Share, added, dominant, scaled, subtracted

GIB = 1 << 30


def amounts(*, cpu: int = 0, memory_gib: int = 0, gpu: int = 0) -> Amounts:
    """Return cores, GiB and cards as amounts; nothing is counted of the memory and compute of cards."""
    return 0, 0, gpu, 0, 1000 * cpu, memory_gib * GIB


TOTAL = amounts(cpu=64, memory_gib=256, gpu=8)
A = amounts(cpu=16, memory_gib=64)
"""Four pods of 4 CPU and 16 GiB."""
B = amounts(cpu=8, memory_gib=64, gpu=4)
"""Two pods of 4 CPU, 32 GiB and 2 GPUs."""


def picked(**queues: tuple[Amounts, int]) -> str:
    """Return which of the queues, each with its use and weight, comes next."""
    return min(queues, key=lambda name: scaled(queues[name][0], TOTAL, queues[name][1]))


def test_the_share_is_that_of_the_scarcest_resource() -> None:
    """Two pods with two GPUs each hold half of eight, although only a quarter of the memory."""
    assert float(dominant(A, TOTAL)) == 0.25
    assert float(dominant(B, TOTAL)) == 0.5
    assert dominant(B, TOTAL).dimension == 2
    assert picked(a=(A, 1), b=(B, 1)) == "a"


def test_a_weight_of_four_turns_the_order_round() -> None:
    """0.5 / 4 is less than 0.25 / 1."""
    assert picked(a=(A, 1), b=(B, 4)) == "b"


def test_one_pod_with_two_gpus_raises_the_share_by_two_of_the_total() -> None:
    """What a pod requests counts, GPUs too, and once."""
    one = amounts(cpu=1, memory_gib=1, gpu=2)
    assert float(dominant(added(NOTHING, one), TOTAL)) == 2 / 8
    assert float(dominant(added(one, one), TOTAL)) == 4 / 8
    assert dominant(subtracted(one, one), TOTAL) == Share()


def test_a_resource_that_does_not_exist_is_skipped() -> None:
    """No node with cards has memory of its own here: the share is that of CPU."""
    total = (0, 0, 8, 0, 64_000, 0)
    used = (0, 0, 1, 0, 16_000, 64 * GIB)
    assert float(dominant(used, total)) == 0.25
    assert scaled(used, total, 1) == scaled((0, 0, 2, 0, 0, 0), total, 1)


@pytest.mark.parametrize("dimension", range(OF_CARDS))
def test_cards_in_use_while_none_is_usable_are_an_infinite_share(dimension: int) -> None:
    """Its queue comes after all others, whatever its weight; without use the resource is skipped."""
    used = tuple(int(each == dimension) for each in range(6))
    total = (0, 0, 0, 0, 64_000, GIB)
    assert float(dominant(used, total)) == float("inf")
    assert scaled(used, total, 10_000) > scaled((0, 0, 0, 0, 64_000, 1000 * GIB), total, 1)
    assert scaled((0, 0, 0, 0, 32_000, 0), total, 1) == scaled((0, 0, 0, 0, 0, GIB // 2), total, 1)


def test_a_share_of_exactly_the_entitlement_is_neither_too_much_nor_too_little() -> None:
    """It makes a queue ready, and neither underused nor overused."""
    third = Share(used=21, total=63)
    assert not shares.is_underused(third, weight=1, of=3, waiting=5)
    assert not shares.is_overused(third, weight=1, of=3)


def test_one_unit_more_or_less_decides() -> None:
    """There is no tolerance."""
    less, more = Share(used=20, total=63), Share(used=22, total=63)
    assert shares.is_underused(less, weight=1, of=3, waiting=1)
    assert shares.is_overused(more, weight=1, of=3)
    assert not shares.is_overused(more, weight=2, of=3)


def test_a_queue_without_waiting_pods_is_not_underused() -> None:
    """However little it has."""
    assert not shares.is_underused(Share(), weight=1, of=3, waiting=0)


WEIGHTS = st.integers(1, 10_000)
TOTALS = st.tuples(*(st.integers(0, bound) for bound in (1 << 34, 1 << 24, 1 << 20, 1 << 39, 1 << 30, 1 << 57)))


@st.composite
def two_queues(draw: st.DrawFn) -> tuple[Amounts, Amounts, Amounts]:
    """Return a total and what two queues hold of it, at the limits of what counts."""
    total = draw(TOTALS)
    used = [tuple(draw(st.integers(0, there_is or 5)) for there_is in total) for _ in range(2)]
    (left, right) = used
    return total, _amounts(left), _amounts(right)


def _amounts(values: tuple[int, ...]) -> Amounts:
    memory, cores, slots, tflops, cpu, bytes_ = values
    return memory, cores, slots, tflops, cpu, bytes_


def exact(used: Amounts, total: Amounts, weight: int) -> Fraction | float:
    """Return the weighted dominant share as a fraction."""
    if any(held and not there_is for held, there_is in zip(used[:OF_CARDS], total[:OF_CARDS], strict=True)):
        return float("inf")
    parts = [Fraction(held, there_is) for held, there_is in zip(used, total, strict=True) if there_is]
    return max(parts, default=Fraction(0)) / weight


@given(two_queues(), WEIGHTS, WEIGHTS)
def test_scaled_shares_are_ordered_as_fractions_are(
    queues: tuple[Amounts, Amounts, Amounts], left_weight: int, right_weight: int
) -> None:
    """Equal for equal ones, and never the other way round."""
    total, left, right = queues
    is_less = exact(left, total, left_weight) < exact(right, total, right_weight)
    is_equal = exact(left, total, left_weight) == exact(right, total, right_weight)
    left_scaled, right_scaled = scaled(left, total, left_weight), scaled(right, total, right_weight)
    assert (left_scaled < right_scaled, left_scaled == right_scaled) == (is_less, is_equal)


@given(st.integers(1, 1 << 57), st.integers(1, 1 << 34), WEIGHTS, WEIGHTS, st.data())
def test_shares_that_differ_by_little_differ(
    bytes_: int, memory: int, left_weight: int, right_weight: int, data: st.DataObject
) -> None:
    """Fractions of different denominators that are neighbours keep their order."""
    total = (memory, 0, 0, 0, 0, bytes_)
    held = data.draw(st.integers(1, memory))
    nearest = held * bytes_ * right_weight // (memory * left_weight)
    for other in (nearest, nearest + 1):
        left, right = Fraction(held, memory * left_weight), Fraction(other, bytes_ * right_weight)
        by_integers = (
            scaled((held, 0, 0, 0, 0, 0), total, left_weight),
            scaled((0, 0, 0, 0, 0, other), total, right_weight),
        )
        assert (by_integers[0] < by_integers[1], by_integers[0] == by_integers[1]) == (left < right, left == right)


def test_the_smallest_possible_difference_counts() -> None:
    """In 10,000 nodes of 16 TiB, with 16 cards of 192 GiB: the shares differ by one of the product of the totals."""
    memory, left_weight, bytes_, right_weight = 10_000 * 16 * 192 * 1024 + 1, 9_999, 10_000 * (16 << 40), 9_997
    whole, other = memory * left_weight, bytes_ * right_weight
    held = pow(other, -1, whole)
    slightly_less = (held * other - 1) // whole
    total = (memory, 0, 0, 0, 0, bytes_)
    assert Fraction(held, whole) - Fraction(slightly_less, other) == Fraction(1, whole * other)
    more, less = (
        scaled((held, 0, 0, 0, 0, 0), total, left_weight),
        scaled((0, 0, 0, 0, 0, slightly_less), total, right_weight),
    )
    assert less < more


@given(two_queues(), WEIGHTS)
def test_equal_weights_do_not_matter(queues: tuple[Amounts, Amounts, Amounts], weight: int) -> None:
    """The order is then that of the shares alone."""
    total, left, right = queues

    def is_before(by: int) -> bool:
        return scaled(left, total, by) < scaled(right, total, by)

    assert is_before(weight) == is_before(1)


@given(two_queues(), WEIGHTS, st.integers(1, 10_000_000))
def test_predicates_are_those_of_fractions(queues: tuple[Amounts, Amounts, Amounts], weight: int, of: int) -> None:
    """Overused is more than the entitlement, underused less, ready not less."""
    total, used, _ = queues
    share, entitlement = dominant(used, total), Fraction(weight, of)
    is_more, is_less = exact(used, total, 1) > entitlement, exact(used, total, 1) < entitlement
    assert shares.is_overused(share, weight=weight, of=of) == is_more
    assert shares.is_underused(share, weight=weight, of=of, waiting=1) == is_less
