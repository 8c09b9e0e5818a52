"""Records Kubernetes Events about decisions in the background; repeated Events are merged."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError
from cluster.metadata import Reference, micro_time
from cluster.resource import EVENTS

log = logging.getLogger(__name__)

_QUEUE = 10_000
_WRITERS = 4
_LONGEST_NOTE = 1024
_RECENT = 2000
_REPEAT_SECONDS = 600.0
_REMEMBERED = 4096
_LONGEST_WAIT_SECONDS = 5.0

EventType = Literal["Normal", "Warning"]


class Event(msgspec.Struct, frozen=True):
    """An event: about which object, and its fields."""

    regarding: Reference
    type: EventType
    reason: str
    action: str
    note: str


class Recorded(msgspec.Struct, frozen=True):
    """An event that was recorded: its number, the time in Unix seconds, and the event."""

    serial: int
    at: float
    event: Event


class _Written(msgspec.Struct):
    name: str
    count: int
    at: float


class Recorder:
    """Writes events in the background. When the queue is full, an event is dropped and counted.

    Events yield to more urgent requests: while any block of `ahead` runs they wait, but no longer than
    `patience_seconds`.

    Attributes:
        recent: the last events, the newest last, whether or not they are written.
        dropped: the number of events that were not queued.
    """

    def __init__(
        self,
        api: Api,
        *,
        component: str,
        instance: str,
        clock: Callable[[], float] = time.time,
        patience_seconds: float = _LONGEST_WAIT_SECONDS,
    ) -> None:
        self._api = api
        self._component = component
        self._instance = instance
        self._clock = clock
        self._queue: asyncio.Queue[tuple[Event, float]] = asyncio.Queue(_QUEUE)
        self._patience = patience_seconds
        self._ahead = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._written: dict[Event, _Written] = {}
        self._serial = 0
        self.recent: deque[Recorded] = deque(maxlen=_RECENT)
        self.dropped = 0

    def record(self, regarding: Reference, *, type: EventType, reason: str, action: str, note: str) -> None:  # noqa: A002
        """Queue an event; returns at once."""
        try:
            event, now = Event(regarding, type, reason, action, note[:_LONGEST_NOTE]), self._clock()
            self.recent.append(Recorded(self.recent[-1].serial + 1 if self.recent else 0, now, event))
            self._queue.put_nowait((event, now))
        except asyncio.QueueFull:
            self.dropped += 1

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Delay events while the block runs."""
        self._ahead += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._ahead -= 1
            if not self._ahead:
                self._quiet.set()

    async def run(self) -> None:
        """Write events until cancelled; events that are still queued then are lost."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._write_forever())

    async def drain(self, seconds: float) -> None:
        """Wait until the queued events have been written, at most `seconds`."""
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

    async def _write(self, event: Event) -> None:
        now = self._clock()
        written = self._written.get(event)
        if written is not None and now - written.at < _REPEAT_SECONDS:
            written.count += 1
            written.at = now
            series = {"count": written.count, "lastObservedTime": micro_time(now)}
            await self._api.merge(EVENTS, {"series": series}, name=written.name, namespace=_namespace(event))
            return
        if len(self._written) >= _REMEMBERED:
            self._written.pop(next(iter(self._written)))
        self._serial += 1
        name = f"{event.regarding.name[:200]}.{int(now * 1e6):x}.{self._serial:x}"
        self._written[event] = _Written(name, 1, now)
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _namespace(event)},
            "eventTime": micro_time(now),
            "regarding": event.regarding,
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }
        await self._api.create(EVENTS, body, namespace=_namespace(event))


def _namespace(event: Event) -> str:
    """Return the namespace of the event, which is `default` for an object without namespace, such as a node."""
    return event.regarding.namespace or "default"
