"""A pod that was not scheduled or not bound gives back what it had, says why, and waits again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from allocation.steps import finish
from cluster.api import Api
from cluster.events import Recorder
from scheduler.binding.binder import FailureReason, Result
from scheduler.binding.failure_handler import FailureHandler
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.recording import events
from tests.scheduler.support.scheduling import cycle_of, schedule
from tests.scheduler.support.volume_binding import until

SINCE = "2026-01-01T00:00:10Z"


class Conditions(Api):
    """An API server that keeps the conditions that are written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def request(self, _method: str, _path: str, *, body: Any = None, **_how: Any) -> bytes:  # type: ignore[override]
        """Keep the conditions."""
        self.written += msgspec.to_builtins(body)["status"]["conditions"]
        return b"{}"

    def has(self, note: str) -> bool:
        """Whether the last condition has this message."""
        return bool(self.written) and self.written[-1]["message"] == note


def handler_of(api: Api, made: ClusterState, recorder: Recorder) -> FailureHandler:
    """Return a handler of failures."""
    return FailureHandler(fenced(api), queue=made.queue, cycle=cycle_of(made), recorder=recorder, metrics=Metrics())


async def test_new_reasons_do_not_change_since_when_a_pod_waits() -> None:
    """Otherwise the next leader would count its patience from the last change of the reasons."""
    api, made = Conditions(), state("n1", unix=lambda: 2e9)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": SINCE}
    made.set_pod(pod("p", memory=1000, status={"conditions": [{"type": "Ready", "status": "False"}, condition]}))
    entry = made.queue.pop_due()
    assert entry is not None
    handler = handler_of(api, made, Recorder(api, component="test", instance="test"))
    publishing = asyncio.create_task(handler.run())
    for note in ("too few cards", "too little memory"):
        handler.unschedulable(entry, Unschedulable(note, frozenset({"CardInsufficientMemory"})))
        await until(partial(api.has, note))
    publishing.cancel()
    assert [each["lastTransitionTime"] for each in api.written] == [SINCE, SINCE]


@pytest.mark.parametrize(
    ("code", "reason"),
    [("CardInsufficientMemory", "FilteringFailed"), ("InsufficientGPU", "InsufficientGPU")],
)
async def test_a_pod_that_fits_nowhere_has_an_event_and_a_condition(code: str, reason: str) -> None:
    """Application services look for the event of a pod whose bound cards are used up; its claim says the same."""
    api, made, given = Conditions(), state("n1", unix=lambda: 2e9), claim("c")
    made.set_claim(given)
    made.set_pod(claiming("p", given))
    entry = made.queue.pop_due()
    assert entry is not None
    recorder = Recorder(api, component="test", instance="test")
    handler = handler_of(api, made, recorder)
    publishing = asyncio.create_task(handler.run())
    handler.unschedulable(entry, Unschedulable("no card fits", frozenset({code})))
    await until(partial(api.has, "no card fits"))
    publishing.cancel()
    assert events(recorder) == [("p", "Warning", reason, "Scheduling", "no card fits")]
    (condition,) = api.written
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no card fits",
    }
    assert made.claims.next_status(("default", "c"), None).message == "pod p: no card fits"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "action", "lost"),
    [
        ("BindingFailed", "Binding", "BindingRefused"),
        ("LeaseConflict", "Binding", "LeaseConflict"),
        ("FailedScheduling", "Scheduling", "BindingRefused"),
    ],
)
def test_a_refused_binding_is_reported_and_the_pod_waits_again(reason: FailureReason, action: str, lost: str) -> None:
    """Its cards are free, and the condition of its claim says why it lost them."""
    api, made, given = Conditions(), state("n1"), claim("c")
    made.set_claim(given)
    made.set_pod(claiming("p", given))
    entry = made.queue.pop_due()
    assert entry is not None
    scheduled = finish(schedule(made, entry.pod))
    assert isinstance(scheduled, Scheduled)
    made.claims.set_reserved(entry.pod.uid, scheduled.allocation)  # type: ignore[arg-type]
    recorder = Recorder(api, component="test", instance="test")
    handler_of(api, made, recorder).not_bound(entry.pod, scheduled, Result(Outcome.REFUSED, "not today", reason))
    assert events(recorder) == [("p", "Warning", reason, action, "not today")]
    status = made.claims.next_status(("default", "c"), None)
    assert status is not None
    assert (status.phase, status.conditions[0].reason, status.message) == ("Failed", lost, "pod p: not today")
    assert not list(made.ledger.reservations())
    assert made.queue.get(entry.pod.uid) is not None


@pytest.mark.parametrize("outcome", [Outcome.GONE, Outcome.TAKEN])
def test_a_pod_that_is_gone_or_has_a_node_is_only_forgotten(outcome: Outcome) -> None:
    """Its cards are free, and nothing is said about it."""
    api, made = Conditions(), state("n1")
    made.set_pod(pod("p", memory=1000))
    entry = made.queue.pop_due()
    assert entry is not None
    scheduled = finish(schedule(made, entry.pod))
    assert isinstance(scheduled, Scheduled)
    recorder = Recorder(api, component="test", instance="test")
    handler_of(api, made, recorder).not_bound(entry.pod, scheduled, Result(outcome))
    assert events(recorder) == []
    assert not list(made.ledger.reservations())
    assert made.queue.pop_due() is None
