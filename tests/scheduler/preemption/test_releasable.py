"""What the cards of all nodes would have free without pods of low priority."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from allocation.placement.query import PlacementQuery
from allocation.steps import finish
from scheduler.preemption import releasable
from scheduler.preemption.releasable import Releasable
from tests.scheduler.support.builders import allocated, pod, state

if TYPE_CHECKING:
    import pytest

    from allocation.steps import Steps


def counted(steps: Steps[list[str]]) -> tuple[int, list[str]]:
    """Return the number of steps and the result."""
    for count in itertools.count(1):
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
    raise AssertionError


def test_nodes_are_ordered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever parts, the node where the least has to become free comes first, and full ones not at all."""
    made = state(*(f"n{number}" for number in range(7)), cards=1)
    for number, memory in enumerate((900, 300, 1000, 500, 800, 700)):  # n6 is empty
        priority = 50 if number == 2 else 0
        made.set_pod(allocated(f"on-n{number}", node=f"n{number}", memory=memory, priority=priority))
    requirements = made.requirements.unlimited(pod("asks", memory=600))
    query = PlacementQuery(requirements.request, requirements.constraints)
    cards = Releasable(made.ledger, lambda uid: made.running[uid].spec.priority)
    finish(cards.refresh())

    def order() -> Steps[list[str]]:
        return list((yield from cards.order(query, 10)))

    for rows, least in ((1, 7), (3, 3), (1024, 1)):
        monkeypatch.setattr(releasable, "_ROWS", rows)
        count, names = counted(order())
        assert names == ["n1", "n6", "n3", "n5", "n4", "n0"]
        assert count > least
