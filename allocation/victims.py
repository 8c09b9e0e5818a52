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
MOST_PRIORITY: Final = 2**31
"""Above every priority."""
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

Permits = Callable[[frozenset[str]], bool]
"""Whether the pods with these UIDs may go together. If they may, so may fewer of them."""


class Limits(msgspec.Struct, frozen=True):
    """Which pods may go together.

    Attributes:
        allowed: how many pods of each disruption budget.
        permits: what else decides.
    """

    allowed: Mapping[str, int] = {}
    permits: Permits = lambda _: True

    def allow(self, chosen: Iterable[Unit]) -> bool:
        """Whether these units may go together."""
        chosen = tuple(chosen)
        return _guarded(chosen) <= Counter(self.allowed) and self.permits(_uids(chosen))


def cost(chosen: Iterable[Candidate]) -> Cost:
    """Return the cost of a set; the smallest is the cheapest, and an empty set is cheaper than any other."""
    chosen = tuple(chosen)
    highest = max((_level(each) for each in chosen), default=(False, False, LOWEST_PRIORITY - 1))
    return highest, sum(each.priority - LOWEST_PRIORITY + 1 for each in chosen), -sum(each.started for each in chosen)


def cheapest(units: Sequence[Unit], fits: Fits, limits: Limits) -> Steps[tuple[Candidate, ...] | None]:
    """Return the pods of the `units` that have to go, in order of their importance; None if not even all are enough.

    The `limits` allow the set. Its highest level is the lowest possible one, and none of its units can be left out.
    With up to 8 units of this level or below, it is the cheapest set of all; with more, it is that if one pod is
    enough. There is a step for each question to `fits`.
    """
    yield
    if fits(frozenset()):
        return ()
    for level in sorted({_highest(each) for each in units}):
        below = [each for each in units if _highest(each) <= level]
        yield
        if not fits(_uids(below)):
            continue
        found = yield from _cheapest(below, fits, limits)
        if found is not None:
            return tuple(sorted(itertools.chain(*found), key=_importance))
    return None


def _cheapest(units: Sequence[Unit], fits: Fits, limits: Limits) -> Steps[Sequence[Unit] | None]:
    if len(units) <= _EXACT:
        return (yield from _cheapest_of_all(units, fits, limits))
    single = None
    for unit in sorted(units, key=lambda unit: _order((unit,))):
        if not limits.allow((unit,)):
            continue
        yield
        if fits(_uids((unit,))):
            single = (unit,)
            break
    if single is not None and len(single[0]) == 1:
        return single
    reprieved = yield from _reprieved(units, fits, limits)
    return min((each for each in (single, reprieved) if each is not None), key=_order, default=None)


def _cheapest_of_all(units: Sequence[Unit], fits: Fits, limits: Limits) -> Steps[Sequence[Unit] | None]:
    needed, tried = frozenset[str](), 0
    for chosen in sorted(_sets(units), key=_order):
        uids = _uids(chosen)
        if not needed <= uids or not limits.allow(chosen):
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


def _reprieved(units: Sequence[Unit], fits: Fits, limits: Limits) -> Steps[Sequence[Unit] | None]:
    """Let the most important units stay as long as the pod fits without their leaving.

    First of those that may all go together, the least important first, then of all: these are often too many, but few
    of them may be left in the end.
    """
    allowed = yield from _allowed(units, limits)
    for candidates in (allowed, units):
        yield
        if not fits(_uids(candidates)):
            continue
        chosen = list(candidates)
        for each in sorted(candidates, key=_unit_importance):
            others = [other for other in chosen if other is not each]
            yield
            if fits(_uids(others)):
                chosen = others
        if limits.allow(chosen):
            return chosen
    return None


def _allowed(units: Sequence[Unit], limits: Limits) -> Steps[Sequence[Unit]]:
    """Return units that may go together: the least important ones first, each if it may go with those before."""
    if limits.allow(units):
        return units
    chosen = list[Unit]()
    for each in sorted(units, key=_unit_importance, reverse=True):
        yield
        if limits.allow((*chosen, each)):
            chosen.append(each)
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


def _guarded(units: Iterable[Unit]) -> Counter[str]:
    """Return how many pods each disruption budget loses."""
    return Counter(each.budget for unit in units for each in unit if each.budget)


def _uids(units: Iterable[Unit]) -> frozenset[str]:
    return frozenset(each.uid for unit in units for each in unit)
