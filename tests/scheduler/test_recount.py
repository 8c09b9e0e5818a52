"""What the ledger says is what a restart would count, and where it is not somebody is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.reflector import Reflector
from cluster.resource import PODS
from scheduler.cycle import Chosen, decide, undo
from scheduler.objects import Pod
from scheduler.recount import divergences
from tests.scheduler.builders import allocated, pod, state, status

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.state import State

STEPS = ("run", "decide", "undo", "end", "delete", "shrink", "grow", "stray")


class Seen:
    """A state, and the cache of pods that tells it of each change."""

    def __init__(self) -> None:
        self.state: State = state("n1", "n2", cards=4)
        self.pods = Reflector(cast("Api", None), PODS, Pod, on_set=self.state.set_pod, on_delete=self.state.drop_pod)
        self.version = 0

    def set(self, made: Pod) -> None:
        """Show a pod as the API server would."""
        self.version += 1
        made.metadata.resource_version = str(self.version)
        self.pods._set(made)

    async def divergences(self) -> list[str]:
        """Recount."""
        return [each async for each in divergences(self.state, self.pods)]


def change(seen: Seen, step: str, number: int, at: int) -> None:
    """Do something that happens."""
    running = [each for each in seen.pods if each.spec.node_name]
    victim = running[at % len(running)] if running else None
    match step:
        case "run":
            seen.set(allocated(f"p{number}", node=f"n{1 + at % 2}", memory=10 * (1 + at), card=at % 4))
        case "decide" | "undo":
            asks = pod(f"p{number}", memory=10 * (1 + at))
            if isinstance(decide(seen.state, asks), Chosen) and step == "undo":
                undo(seen.state, asks)
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
async def test_no_history_diverges(steps: list[tuple[str, int]]) -> None:
    """Pods that run, end, vanish, are decided and given back, on nodes whose cards come and go."""
    seen = Seen()
    for number, (step, at) in enumerate(steps):
        change(seen, step, number, at)
        assert await seen.divergences() == []


@pytest.mark.parametrize("damage", ["forgotten", "kept", "column", "other"])
async def test_a_ledger_that_is_wrong_is_found_out(damage: str) -> None:
    """A pod that is not counted, one that is gone and counted, another amount, a column that is no sum."""
    seen = Seen()
    runs = allocated("p", node="n1", memory=100)
    seen.set(runs)
    assert await seen.divergences() == []
    ledger = seen.state.ledger
    held = ledger.holding(runs.uid)
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
    (told,) = await seen.divergences()
    assert "GPU-n1-0" in told or runs.uid in told or "default/p" in told
