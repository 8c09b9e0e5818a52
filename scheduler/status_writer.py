"""Writes statuses of objects: one at once, or those of a kind within a budget that does not depend on their number."""

import logging
import time
from asyncio import Lock, sleep
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.metadata import ObjectMeta, timestamp
from cluster.resource import Resource
from scheduler.fenced_api import FencedApi

log = logging.getLogger(__name__)

WRITES_PER_SECOND: Final = 5
PAUSE_SECONDS: Final = 10.0
"""The least time between two writes of one status."""
_STEP: Final = 64
"""The objects that are looked at without interruption."""


class HasMeta(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its name, namespace and UID, among others."""


Item = TypeVar("Item", bound=HasMeta)
Status = TypeVar("Status", bound=msgspec.Struct)

Desired = Callable[[Item, Status, str], Status]
"""Returns the status of an object, from its last status and the time; the last one if nothing changed."""


class Reporter(Protocol[Item, Status]):
    """The objects of one kind, and what their statuses should say."""

    @property
    def resource(self) -> Resource:
        """The kind."""

    def objects(self) -> Iterable[Item]:
        """Return all objects."""

    def current(self, item: Item) -> Item | None:
        """Return an object as it is now; None if it was deleted."""

    def shown(self, item: Item) -> Status:
        """Return the status that the object has in the API."""

    def desired(self) -> Desired[Item, Status]:
        """Return the function that works out statuses, as everything is at this moment."""

    def announce(self, item: Item, new: Status, before: Status) -> None:
        """Record events about what has changed in a status that was written."""


class PacedStatusWriter(Generic[Item, Status]):
    """The only writer of the statuses of a kind, as long as this replica is trusted to lead.

    A status is worked out when it is written, and written only if something in it changed. The object whose status was
    written first comes first.
    """

    def __init__(
        self,
        fenced: FencedApi,
        reporter: Reporter[Item, Status],
        *,
        turn: Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write what `reporter` says at moments when the `turn` is free: then no pod is reserved only for a test."""
        self._fenced = fenced
        self._turn = turn
        self._reporter = reporter
        self._clock = clock
        self._written: dict[str, tuple[float, Status]] = {}
        """By UID: when the status was last tried, and what it is as far as this writer knows."""

    async def run(self) -> None:
        """Write until cancelled, or until this replica is not trusted any more."""
        while self._fenced.is_trusted:
            await self.write_due()
            await sleep(1)

    async def write_due(self) -> None:
        """Write the statuses that changed, at most as many as are written in a second."""
        left = WRITES_PER_SECOND
        async with self._turn:
            desired = self._reporter.desired()
        for position, item in enumerate(self._due()):
            if position % _STEP == _STEP - 1:
                await sleep(0)
            current = self._reporter.current(item)
            if current is not None and await self._write(current, desired):
                left -= 1
                if not left or not self._fenced.is_trusted:
                    return

    def _due(self) -> list[Item]:
        """Return the objects whose last write is long enough ago, the oldest first; forget those that are deleted."""
        objects, now, never = list(self._reporter.objects()), self._clock(), -PAUSE_SECONDS
        for uid in self._written.keys() - {each.metadata.uid for each in objects}:
            del self._written[uid]
        tried = (
            (self._written[uid][0] if (uid := each.metadata.uid) in self._written else never, each) for each in objects
        )
        due = [
            (at, each.metadata.namespace, each.metadata.name, each) for at, each in tried if now - at >= PAUSE_SECONDS
        ]
        return [each for *_, each in sorted(due, key=lambda entry: entry[:3])]

    async def _write(self, item: Item, desired: Desired[Item, Status]) -> bool:
        """Write the status of an object if it changed; return whether that was tried."""
        meta, kind, shown = item.metadata, self._reporter.resource, self._reporter.shown(item)
        _, before = self._written.get(meta.uid, (0.0, shown))
        async with self._turn:
            new = desired(item, before, timestamp(time.time()))
        if new == before:
            return False
        error = await write_status(self._fenced, kind, meta, _patch(new, before, shown))
        self._written[meta.uid] = (self._clock(), before if error is not None else new)
        if error is None:
            self._reporter.announce(item, new, before)
        return True


async def write_status(
    fenced: FencedApi, kind: Resource, meta: ObjectMeta, patch: Mapping[str, Any]
) -> ClusterError | None:
    """Write the status of the object with this UID by a merge patch; return the error if it was not written.

    With the UID, the status does not get into another object of the name. It is not worth a word in the log that an
    object was deleted, or created again: it is about to be forgotten.
    """
    try:
        await fenced.patch_status(kind, meta, patch)
    except (ConflictError, NotFoundError) as error:
        return error
    except ClusterError as error:
        reference = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        log.warning("%s %s: its status was not written: %s", kind.kind, reference, error)
        return error
    return None


def _patch(new: msgspec.Struct, *old: msgspec.Struct) -> dict[str, Any]:
    """Return a status as a merge patch, which removes the entries of maps that only the `old` statuses have."""
    patch: dict[str, Any] = msgspec.to_builtins(new)
    for status in old:
        for field, value in msgspec.to_builtins(status).items():
            if isinstance(value, dict):
                patch[field] = dict.fromkeys(value.keys() - patch[field].keys()) | patch[field]
    return patch
