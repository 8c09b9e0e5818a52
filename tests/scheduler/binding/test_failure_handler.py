"""The condition of a pod that waits says since when it has waited, whatever the reasons are at the moment."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from cluster.api import Api
from cluster.events import Recorder
from scheduler.binding.failure_handler import FailureHandler
from scheduler.cycle.result import Unschedulable
from scheduler.metrics.instruments import Metrics
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.scheduling import cycle_of
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


async def test_new_reasons_do_not_change_since_when_a_pod_waits() -> None:
    """Otherwise the next leader would count its patience from the last change of the reasons."""
    api, made = Conditions(), state("n1", unix=lambda: 2e9)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": SINCE}
    made.set_pod(pod("p", memory=1000, status={"conditions": [{"type": "Ready", "status": "False"}, condition]}))
    entry = made.queue.pop_due()
    assert entry is not None
    recorder = Recorder(api, component="test", instance="test")
    handler = FailureHandler(fenced(api), queue=made.queue, cycle=cycle_of(made), recorder=recorder, metrics=Metrics())
    publishing = asyncio.create_task(handler.run())
    for note in ("too few cards", "too little memory"):
        handler.unschedulable(entry, Unschedulable(note, frozenset({"CardInsufficientMemory"})))
        await until(partial(api.has, note))
    publishing.cancel()
    assert [each["lastTransitionTime"] for each in api.written] == [SINCE, SINCE]
