"""Which queues take back what they are owed: never so much that it is taken from them again."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.reclaim import WINDOW_SECONDS, Entitlements, Holding, Rank, Turnover, may_take
from allocation.fairness.shares import Amounts, added, subtracted
from tests.scheduler.support.builders import Clock

TOTAL: Amounts = (100, 100, 100, 100, 100, 100)
AMOUNTS = st.tuples(*[st.integers(0, 60)] * 6)
WEIGHT = st.integers(1, 5)
QUEUE = st.builds(Holding, AMOUNTS, WEIGHT)
RANK = st.builds(Rank, st.integers(0, 2), st.integers(0, 2))


def cards(memory: int) -> Amounts:
    """Return amounts of which only the memory is not 0."""
    return memory, 0, 0, 0, 0, 0


def is_fair(entitlements: Entitlements, taker: Holding, giver: Holding, *, gets: Amounts, gives: Amounts) -> bool:
    """Whether one queue may reclaim from another: it is owed, the other has too much, and neither is so afterwards."""
    return (
        entitlements.is_owed(taker)
        and entitlements.has_surplus(giver)
        and not entitlements.has_surplus(Holding(added(taker.amounts, gets), taker.weight))
        and not entitlements.is_owed(Holding(subtracted(giver.amounts, gives), giver.weight))
    )


def test_owed_and_surplus_are_strict() -> None:
    """A queue with exactly its entitlement neither takes nor gives."""
    entitlements = Entitlements(TOTAL, 4)
    for memory, is_owed, has_surplus in ((24, True, False), (25, False, False), (26, False, True)):
        holding = Holding(cards(memory), 1)
        assert (entitlements.is_owed(holding), entitlements.has_surplus(holding)) == (is_owed, has_surplus)


@given(QUEUE, QUEUE, AMOUNTS, AMOUNTS, st.tuples(st.integers(2, 20), st.integers(2, 20)))
def test_the_giver_never_reclaims_from_the_taker(
    taker: Holding, giver: Holding, gets: Amounts, gives: Amounts, weights: tuple[int, int]
) -> None:
    """However many queues have pods by then, as long as no other pod of the two has come or gone."""
    at_first, later = (Entitlements(TOTAL, each) for each in weights)
    if is_fair(at_first, taker, giver, gets=gets, gives=gives):
        owed = Holding(subtracted(giver.amounts, gives), giver.weight)
        surplus = Holding(added(taker.amounts, gets), taker.weight)
        assert not (later.is_owed(owed) and later.has_surplus(surplus))


@given(
    st.lists(st.tuples(st.integers(0, 100), WEIGHT), min_size=2, max_size=5),
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 30), st.integers(2, 20)),
        min_size=20,
        max_size=60,
    ),
)
def test_each_reclaim_makes_the_shares_more_even(
    queues: list[tuple[int, int]], attempts: list[tuple[int, int, int, int]]
) -> None:
    """So it ends, also if the queues with pods change all the time: the sum of squares by weight becomes smaller."""
    held = [memory for memory, _ in queues]

    def unevenness() -> Fraction:
        return sum((Fraction(memory**2, weight) for memory, (_, weight) in zip(held, queues, strict=True)), Fraction())

    for one, other, memory, weights in attempts:
        taker, giver = one % len(queues), other % len(queues)
        if taker == giver or memory > held[giver]:
            continue
        holdings = [Holding(cards(each), weight) for each, (_, weight) in zip(held, queues, strict=True)]
        pod = cards(memory)
        if is_fair(Entitlements(TOTAL, weights), holdings[taker], holdings[giver], gets=pod, gives=pod):
            before = unevenness()
            held[taker] += memory
            held[giver] -= memory
            assert unevenness() < before


@given(st.sampled_from(("Never", "WithinTier", "Always")), RANK, RANK)
def test_nobody_reclaims_what_is_taken_back_at_once(reclaim: str, taker: Rank, holder: Rank) -> None:
    """A pod of a higher tier, or of a higher priority in the same tier, would be offered the cards first."""
    if may_take(reclaim, taker=taker, holder=holder):  # type: ignore[arg-type]
        assert (holder.tier, holder.priority) <= (taker.tier, max(taker.priority, holder.priority))
        assert not (holder.tier == taker.tier and holder.priority > taker.priority)
        assert reclaim != "Never"


def test_tiers_decide_from_whom() -> None:
    """`WithinTier` ends at the tier; `Always` includes lower tiers, whatever the priority of their pods."""
    taker = Rank(1, 5)
    holders = {
        "higher": Rank(2, 0),
        "important": Rank(1, 6),
        "equal": Rank(1, 5),
        "less": Rank(1, 4),
        "low": Rank(0, 9),
    }

    def reclaimed(reclaim: str) -> set[str]:
        return {
            name
            for name, holder in holders.items()
            if may_take(reclaim, taker=taker, holder=holder)  # type: ignore[arg-type]
        }

    assert reclaimed("Never") == set()
    assert reclaimed("WithinTier") == {"equal", "less"}
    assert reclaimed("Always") == {"equal", "less", "low"}


def test_a_queue_reclaims_at_most_its_entitlement_in_an_hour() -> None:
    """Pods that come, reclaim and go cannot evict others without end."""
    clock = Clock()
    turnover, entitlements, one = Turnover(clock), Entitlements(TOTAL, 4), Holding(cards(10), 1)
    for uid in ("a", "b"):
        assert turnover.allows("q", one, entitlements)
        turnover.note("q", uid, one.amounts)
    assert not turnover.allows("q", one, entitlements)
    assert turnover.allows("q", Holding(cards(5), 1), entitlements)
    assert turnover.allows("other", one, entitlements)
    clock.now += WINDOW_SECONDS - 1
    turnover.note("q", "a", cards(1))
    assert not turnover.allows("q", one, entitlements)
    clock.now += 1
    assert turnover.allows("q", one, entitlements)


def test_what_was_not_reclaimed_after_all_does_not_count() -> None:
    """Nor is a queue unknown that has reclaimed nothing."""
    turnover, entitlements, all_of_it = Turnover(Clock()), Entitlements(TOTAL, 4), Holding(cards(25), 1)
    turnover.forget("q", "a")
    turnover.note("q", "a", all_of_it.amounts)
    assert not turnover.allows("q", all_of_it, entitlements)
    turnover.forget("q", "a")
    assert turnover.allows("q", all_of_it, entitlements)
