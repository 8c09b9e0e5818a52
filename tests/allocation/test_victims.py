"""The pods that have to go: exactly the cheapest set where all sets are tried, and never one pod too many."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from allocation import victims
from allocation.steps import finish
from allocation.victims import Candidate, Limits, Unit, cheapest, cost

if TYPE_CHECKING:
    from collections.abc import Iterable

CANDIDATE = st.tuples(
    st.integers(-5, 5) | st.sampled_from([victims.LOWEST_PRIORITY, 10**9]),  # priority
    st.integers(0, 100),  # start
    st.sampled_from(["", "", "", "pdb-a", "pdb-b"]),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),  # what it gives back
    st.sampled_from(["", "", "gang-a", "gang-b"]),
)
NEED = st.tuples(st.integers(0, 10), st.integers(0, 10))


Drawn = tuple[int, int, str, tuple[int, int], str]


def world(drawn: list[Drawn], need: tuple[int, int]) -> tuple[list[Unit], victims.Fits]:
    """Return the units, and a test whether those that leave give back at least `need`."""
    units: dict[str, Unit] = {}
    for place, (priority, start, budget, _, gang) in enumerate(drawn):
        candidate = Candidate(f"p{place}", priority, float(start), budget)
        units[gang or candidate.uid] = (*units.get(gang, ()), candidate)
    back = {f"p{place}": each[3] for place, each in enumerate(drawn)}

    def fits(gone: frozenset[str]) -> bool:
        return all(sum(back[uid][dimension] for uid in gone) >= need[dimension] for dimension in (0, 1))

    return list(units.values()), fits


def pods(units: Iterable[Unit]) -> tuple[Candidate, ...]:
    """Return the pods of some units."""
    return tuple(itertools.chain(*units))


def uids(candidates: Iterable[Candidate]) -> frozenset[str]:
    """Return the UIDs of some pods."""
    return frozenset(each.uid for each in candidates)


def respects(chosen: tuple[Candidate, ...], allowed: dict[str, int]) -> bool:
    """Whether no budget loses too many pods, in other words."""
    return all(count <= allowed[budget] for budget, count in Counter(each.budget for each in chosen).items() if budget)


@given(st.lists(CANDIDATE, max_size=8), NEED, st.integers(0, 2), st.integers(0, 2))
def test_up_to_eight_units_it_is_the_cheapest_set_of_all(
    drawn: list[Drawn], need: tuple[int, int], a: int, b: int
) -> None:
    """Compared with every subset."""
    units, fits = world(drawn, need)
    allowed = {"pdb-a": a, "pdb-b": b}
    every = map(
        pods,
        itertools.chain.from_iterable(itertools.combinations(units, size) for size in range(len(units) + 1)),
    )
    possible = [each for each in every if respects(each, allowed) and fits(uids(each))]
    found = finish(cheapest(units, fits, Limits(allowed)))
    if found is None:
        assert not possible
    else:
        assert set(found) in map(set, possible)
        assert cost(found) == min(map(cost, possible))


@given(st.lists(CANDIDATE, max_size=24), NEED, st.integers(0, 2), st.integers(0, 2))
def test_no_unit_of_the_set_can_stay_and_no_budget_is_exceeded(
    drawn: list[Drawn], need: tuple[int, int], a: int, b: int
) -> None:
    """With many candidates, too; and of a gang no pod stays alone."""
    units, fits = world(drawn, need)
    allowed = {"pdb-a": a, "pdb-b": b}
    found = finish(cheapest(units, fits, Limits(allowed)))
    if found is None:
        assert not fits(uids(pods(unit for unit in units if not any(each.budget for each in unit))))
        return
    gone = uids(found)
    assert fits(gone)
    assert respects(found, allowed)
    assert all(uids(unit) <= gone or not uids(unit) & gone for unit in units)
    assert not any(fits(gone - uids(unit)) for unit in units if uids(unit) & gone)


@given(st.lists(CANDIDATE, min_size=9, max_size=24), NEED)
def test_the_highest_priority_of_the_set_is_the_lowest_possible(drawn: list[Drawn], need: tuple[int, int]) -> None:
    """Without budgets, a set of lower priority would not be enough."""
    units, fits = world([(priority, start, "", back, gang) for priority, start, _, back, gang in drawn], need)
    found = finish(cheapest(units, fits, Limits()))
    if found:
        highest = max(each.priority for each in found)
        assert not fits(uids(pods(unit for unit in units if all(each.priority < highest for each in unit))))


@given(st.lists(CANDIDATE, min_size=9, max_size=24), NEED)
def test_of_many_units_the_cheapest_single_pod_is_taken_if_one_is_enough(
    drawn: list[Drawn], need: tuple[int, int]
) -> None:
    """Even where a gang alone, or several pods, would be enough as well."""
    units, fits = world([(0, start, "", back, gang) for _, start, _, back, gang in drawn], need)
    enough = [unit for unit in units if len(unit) == 1 and fits(uids(unit))]
    found = finish(cheapest(units, fits, Limits()))
    if enough and found:
        assert found == min(enough, key=lambda unit: (cost(unit), unit[0].uid))


@given(st.lists(CANDIDATE, max_size=8), NEED, st.integers(0, 8))
def test_the_cheapest_set_that_is_permitted_is_chosen(drawn: list[Drawn], need: tuple[int, int], most: int) -> None:
    """Compared with every subset, where a set that is too large is not permitted."""
    units, fits = world(drawn, need)
    back = {f"p{place}": each[3][0] for place, each in enumerate(drawn)}

    def permits(gone: frozenset[str]) -> bool:
        return sum(back[uid] for uid in gone) <= most

    every = map(
        pods,
        itertools.chain.from_iterable(itertools.combinations(units, size) for size in range(len(units) + 1)),
    )
    limits = Limits({"pdb-a": 8, "pdb-b": 8}, permits)
    possible = [each for each in every if permits(uids(each)) and fits(uids(each))]
    found = finish(cheapest(units, fits, limits))
    assert (found is None) == (not possible)
    if found is not None:
        assert cost(found) == min(map(cost, possible))


def test_few_of_many_units_go_together_although_most_may_not() -> None:
    """Two of twelve may go, and only the two most important ones are of use."""
    units = [(Candidate(f"p{number}", 0, float(number)),) for number in range(12)]

    def fits(gone: frozenset[str]) -> bool:
        return {"p0", "p1"} <= gone

    found = finish(cheapest(units, fits, Limits(permits=lambda gone: len(gone) <= 2)))
    assert found is not None
    assert uids(found) == {"p0", "p1"}
    assert finish(cheapest(units, fits, Limits(permits=lambda gone: len(gone) <= 1))) is None


def test_one_young_pod_goes_before_an_old_one_and_before_two() -> None:
    """Equal priorities: few pods, then those that lose the least work."""
    candidates = [Candidate("old", 0, 10.0), Candidate("young", 0, 20.0), Candidate("half", 0, 99.0)]

    def fits(gone: frozenset[str]) -> bool:
        return bool(gone & {"old", "young"})

    assert finish(cheapest([(each,) for each in candidates], fits, Limits())) == (candidates[1],)


def test_two_pods_go_before_a_gang_of_three() -> None:
    """With many units, too: a gang that would be enough alone is compared with pods that are enough together."""
    gang = tuple(Candidate(f"member-{number}", 0) for number in range(3))
    halves = [(Candidate(f"half-{number}", 0, float(number)),) for number in range(9)]

    def fits(gone: frozenset[str]) -> bool:
        return uids(gang) <= gone or sum(uid.startswith("half") for uid in gone) >= 2

    for number in (2, 9):
        found = finish(cheapest([gang, *halves[-number:]], fits, Limits()))
        assert found is not None
        assert uids(found) == {"half-7", "half-8"}


def test_nobody_goes_if_the_pod_fits() -> None:
    """An empty set is cheapest, and differs from no set at all."""
    assert finish(cheapest([(Candidate("a", 0),)], lambda _: True, Limits())) == ()
    assert finish(cheapest([(Candidate("a", 0),)], lambda _: False, Limits())) is None
