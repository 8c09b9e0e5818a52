"""Kubernetes Events about decisions: written behind the decision, merged where they repeat, never in its way."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Literal

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError
from cluster.metadata import Reference
from cluster.resource import EVENTS

log = logging.getLogger(__name__)

_QUEUE = 10_000
_WRITERS = 4
_LONGEST_NOTE = 1024
_REPEAT_SECONDS = 600.0
_REMEMBERED = 4096
_PATIENCE_SECONDS = 5.0

EventType = Literal["Normal", "Warning"]


class _Event(msgspec.Struct, frozen=True):
    regarding: Reference
    type: EventType
    reason: str
    action: str
    note: str


class _Written(msgspec.Struct):
    name: str
    count: int
    at: float


class Recorder:
    """Writes events in the background. When the queue is full an event is dropped and counted: decisions go on.

    Events give way to what they tell of: as long as somebody is `ahead` they wait, but no longer than a few seconds.
    """

    def __init__(
        self,
        api: Api,
        *,
        component: str,
        instance: str,
        clock: Callable[[], float] = time.time,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._api = api
        self._component = component
        self._instance = instance
        self._clock = clock
        self._queue: asyncio.Queue[tuple[_Event, float]] = asyncio.Queue(_QUEUE)
        self._patience = patience_seconds
        self._ahead = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._written: dict[_Event, _Written] = {}
        self._serial = 0
        self.dropped = 0

    def record(self, regarding: Reference, *, type: EventType, reason: str, action: str, note: str) -> None:  # noqa: A002
        """Take an event to be written; returns at once."""
        try:
            event = _Event(regarding, type, reason, action, note[:_LONGEST_NOTE])
            self._queue.put_nowait((event, self._clock()))
        except asyncio.QueueFull:
            self.dropped += 1

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Go first while the block runs."""
        self._ahead += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._ahead -= 1
            if not self._ahead:
                self._quiet.set()

    async def run(self) -> None:
        """Write events until cancelled; what is queued then is lost, as events may be."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._write_forever())

    async def drain(self, seconds: float) -> None:
        """Wait until what is queued has been written, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            log.warning("%d events were not written before the process ended", self._queue.qsize())

    async def _write_forever(self) -> None:
        while True:
            event, at = await self._queue.get()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, at + self._patience - self._clock())):
                        await self._quiet.wait()
                await self._write(event)
            except ClusterError as error:
                log.warning("event %s about %s was not written: %s", event.reason, event.regarding.name, error)
            finally:
                self._queue.task_done()

    async def _write(self, event: _Event) -> None:
        now = self._clock()
        known = self._written.get(event)
        if known is not None and now - known.at < _REPEAT_SECONDS:
            known.count += 1
            known.at = now
            series = {"count": known.count, "lastObservedTime": _micro_time(now)}
            await self._api.merge(EVENTS, {"series": series}, name=known.name, namespace=event.regarding.namespace)
            return
        if len(self._written) >= _REMEMBERED:
            self._written.pop(next(iter(self._written)))
        self._serial += 1
        name = f"{event.regarding.name[:200]}.{int(now * 1e6):x}.{self._serial:x}"
        self._written[event] = _Written(name, 1, now)
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": event.regarding.namespace},
            "eventTime": _micro_time(now),
            "regarding": event.regarding,
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }
        await self._api.create(EVENTS, body, namespace=event.regarding.namespace)


def _micro_time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
