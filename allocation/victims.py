"""Which pods have to go so that another one fits: the cheapest set of them, by an order of costs.

The pods of a gang go together or not at all. The cost of a set is, in this order: whether it violates a disruption
budget; whether one of the pods may take too long to end; the highest priority; the sum of the priorities, each counted
from below the lowest possible one, so that few pods are cheaper than many; and how long the pods have run. Source:
kube-scheduler's order of nodes for preemption.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocation.steps import Steps

LOWEST_PRIORITY: Final = -(2**31)
_EXACT: Final = 8
"""Up to this number of units, every set of them is considered, cheapest first."""


class Candidate(msgspec.Struct, frozen=True):
    """A pod that may be preempted.

    Attributes:
        uid: of the pod.
        priority: of the pod; at least `LOWEST_PRIORITY`.
        started: when it began to run, in seconds.
        budget: the disruption budget that guards it; empty for most pods.
        is_slow: whether it may still be ending when no pod waits for it any more.
        violates: whether its end violates a disruption budget, whatever is allowed.
    """

    uid: str
    priority: int
    started: float = 0.0
    budget: str = ""
    is_slow: bool = False
    violates: bool = False


Unit = tuple[Candidate, ...]
"""Pods that go together: those of a gang, or one."""

Level = tuple[bool, bool, int]
"""Whether the end of a pod violates a budget, whether it is slow, and its priority."""

Cost = tuple[Level, int, float]
"""The highest level, the sum of the priorities, and the negated sum of the starts."""

Fits = Callable[[frozenset[str]], bool]
"""Whether the pod fits once the pods with these UIDs are gone. If it fits, it also fits when more are gone."""


def cost(chosen: Iterable[Candidate]) -> Cost:
    """Return the cost of a set; the smallest is the cheapest, and an empty set is cheaper than any other."""
    chosen = tuple(chosen)
    highest = max((_level(each) for each in chosen), default=(False, False, LOWEST_PRIORITY - 1))
    return highest, sum(each.priority - LOWEST_PRIORITY + 1 for each in chosen), -sum(each.started for each in chosen)


def cheapest(units: Sequence[Unit], fits: Fits, *, allowed: Mapping[str, int]) -> Steps[tuple[Candidate, ...] | None]:
    """Return the pods of the `units` that have to go, in order of their importance; None if not even all are enough.

    The set has no more pods of a disruption budget than are `allowed`. Its highest level is the lowest possible one,
    and none of its units can be left out. With up to 8 units of this level or below, it is the cheapest set of all;
    with more, it is that if one pod is enough. There is a step for each question to `fits`.
    """
    yield
    if fits(frozenset()):
        return ()
    for level in sorted({_highest(each) for each in units}):
        below = [each for each in units if _highest(each) <= level]
        yield
        if not fits(_uids(below)):
            continue
        found = yield from _cheapest(below, fits, allowed)
        if found is not None:
            return tuple(sorted(itertools.chain(*found), key=_importance))
    return None


def _cheapest(units: Sequence[Unit], fits: Fits, allowed: Mapping[str, int]) -> Steps[Sequence[Unit] | None]:
    if len(units) <= _EXACT:
        return (yield from _cheapest_of_all(units, fits, allowed))
    single = None
    for unit in sorted(units, key=lambda unit: _order((unit,))):
        if not _respects((unit,), allowed):
            continue
        yield
        if fits(_uids((unit,))):
            single = (unit,)
            break
    if single is not None and len(single[0]) == 1:
        return single
    reprieved = yield from _reprieved(units, fits, allowed)
    return min((each for each in (single, reprieved) if each is not None), key=_order, default=None)


def _cheapest_of_all(units: Sequence[Unit], fits: Fits, allowed: Mapping[str, int]) -> Steps[Sequence[Unit] | None]:
    needed, tried = frozenset[str](), 0
    for chosen in sorted(_sets(units), key=_order):
        uids = _uids(chosen)
        if not needed <= uids or not _respects(chosen, allowed):
            continue
        yield
        if fits(uids):
            return chosen
        tried += 1
        if tried == len(units):
            needed = yield from _needed(units, fits)
    return None


def _needed(units: Sequence[Unit], fits: Fits) -> Steps[frozenset[str]]:
    """Return the pods of the units that are always among those that go, so that most sets need not be tried."""
    pods, needed = _uids(units), frozenset[str]()
    for unit in units:
        yield
        if not fits(pods - _uids((unit,))):
            needed |= _uids((unit,))
    return needed


def _sets(units: Sequence[Unit]) -> Iterator[tuple[Unit, ...]]:
    for count in range(1, len(units) + 1):
        yield from itertools.combinations(units, count)


def _reprieved(units: Sequence[Unit], fits: Fits, allowed: Mapping[str, int]) -> Steps[Sequence[Unit] | None]:
    """Let the most important units stay as long as the pod fits without their leaving."""
    left, chosen = Counter(allowed), list[Unit]()
    for each in sorted(units, key=_unit_importance, reverse=True):
        guarded = _guarded((each,))
        if guarded <= left:
            left -= guarded
            chosen.append(each)
    yield
    if not fits(_uids(chosen)):
        return None
    for each in sorted(chosen, key=_unit_importance):
        others = [other for other in chosen if other is not each]
        yield
        if fits(_uids(others)):
            chosen = others
    return chosen


def _level(candidate: Candidate) -> Level:
    return candidate.violates, candidate.is_slow, candidate.priority


def _highest(unit: Unit) -> Level:
    return max(map(_level, unit))


def _unit_importance(unit: Unit) -> tuple[bool, bool, bool, int, int, float, str]:
    """Return a sort key: first those that should stay most: guarded, slow, of high priority, large, and old."""
    is_unguarded, (violates, is_slow, priority) = not any(each.budget for each in unit), _highest(unit)
    oldest = min(each.started for each in unit)
    return not violates, is_unguarded, not is_slow, -priority, -len(unit), oldest, unit[0].uid


def _importance(candidate: Candidate) -> tuple[bool, bool, int, float, str]:
    """Return a sort key: first those that should stay most: guarded, of high priority, and old."""
    return not candidate.violates, not candidate.budget, -candidate.priority, candidate.started, candidate.uid


def _order(chosen: Sequence[Unit]) -> tuple[Cost, tuple[str, ...]]:
    return cost(itertools.chain(*chosen)), tuple(each.uid for unit in chosen for each in unit)


def _respects(chosen: Iterable[Unit], allowed: Mapping[str, int]) -> bool:
    """Whether no disruption budget loses more pods than are allowed."""
    return _guarded(chosen) <= Counter(allowed)


def _guarded(units: Iterable[Unit]) -> Counter[str]:
    """Return how many pods each disruption budget loses."""
    return Counter(each.budget for unit in units for each in unit if each.budget)


def _uids(units: Iterable[Unit]) -> frozenset[str]:
    return frozenset(each.uid for unit in units for each in unit)
