"""The ledger equals a recount after any history, and every difference is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.steps import finish
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.state.ledger_comparer import differences
from tests.scheduler.support.builders import allocated, pod, state, status
from tests.scheduler.support.scheduling import forget, schedule

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.state.cluster_state import ClusterState

STEPS = ("run", "decide", "undo", "end", "delete", "shrink", "grow", "stray")


class Seen:
    """A state, and the informer of pods that passes each change on to it."""

    def __init__(self) -> None:
        self.state: ClusterState = state("n1", "n2", cards=4)
        self.pods = Informer(cast("Api", None), PODS, Pod, on_upsert=self.state.set_pod, on_delete=self.state.drop_pod)
        self.version = 0

    def set(self, made: Pod) -> None:
        """Set a pod, as the watch does."""
        self.version += 1
        made.metadata.resource_version = str(self.version)
        self.pods._set(made)

    async def differences(self) -> list[str]:
        """Compare the ledger with a recount."""
        return [each async for each in differences(self.state, self.pods)]


def change(seen: Seen, step: str, number: int, at: int) -> None:
    """Make one change."""
    running = [each for each in seen.pods if each.spec.node_name]
    victim = running[at % len(running)] if running else None
    match step:
        case "run":
            seen.set(allocated(f"p{number}", node=f"n{1 + at % 2}", memory=10 * (1 + at), card=at % 4))
        case "decide" | "undo":
            pending = pod(f"p{number}", memory=10 * (1 + at))
            if isinstance(finish(schedule(seen.state, pending)), Scheduled) and step == "undo":
                forget(seen.state, pending)
        case "end" if victim:
            fields: dict[str, Any] = {"node": victim.spec.node_name, "memory": 10, "phase": "Succeeded"}
            seen.set(allocated(victim.metadata.name, **fields))
        case "delete" if victim:
            seen.pods._delete(victim)
        case "shrink":
            seen.state.set_status(status("n2", cards=at % 4))
        case "grow":
            seen.state.set_status(status("n2", cards=4))
        case "stray":
            seen.set(pod(f"p{number}", memory=5, node="n1", phase="Running"))


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=40))
async def test_no_history_leads_to_a_difference(steps: list[tuple[str, int]]) -> None:
    """Pods run, end, vanish, are scheduled and forgotten, on nodes whose cards are added and removed."""
    seen = Seen()
    for number, (step, at) in enumerate(steps):
        change(seen, step, number, at)
        assert await seen.differences() == []


@pytest.mark.parametrize("damage", ["forgotten", "kept", "column", "other"])
async def test_each_kind_of_difference_is_reported(damage: str) -> None:
    """A pod that is not counted, a deleted pod that is, another amount, and a column that differs from the sum."""
    seen = Seen()
    runs = allocated("p", node="n1", memory=100)
    seen.set(runs)
    assert await seen.differences() == []
    ledger = seen.state.ledger
    held = ledger.reservation(runs.uid)
    assert held is not None
    match damage:
        case "forgotten":
            ledger.release(runs.uid)
        case "kept":
            seen.pods._objects.clear()
        case "column":
            ledger.used[0, 0, 0] += 1
        case _:
            ledger.record(runs.uid, "n2", ())
    (text,) = await seen.differences()
    assert "GPU-n1-0" in text or runs.uid in text or "default/p" in text
