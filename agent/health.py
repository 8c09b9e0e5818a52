"""When a card becomes unhealthy, and when it recovers. Pure: events, probes and the time are arguments.

A card becomes unhealthy when its driver reports a critical XID or a double-bit ECC error, when its count of uncorrected
ECC errors grows, or when a probe fails. It recovers after `quiet_seconds` without any of these; after failed probes,
that time begins with the first probe that succeeds. A card that needs a reset fails its probes until it is reset.
"""

from collections.abc import Collection
from typing import Literal

import msgspec

EventKind = Literal["xid", "double-bit-ecc"]


class CriticalEvent(msgspec.Struct, frozen=True):
    """An error of a card that the driver reported; `xid` is the XID of an event of that kind."""

    uuid: str
    kind: EventKind
    at: float
    xid: int = 0

    def __str__(self) -> str:
        return f"XID {self.xid}" if self.kind == "xid" else "double-bit ECC error"


class Probe(msgspec.Struct, frozen=True):
    """The result of one probe of a card.

    Attributes:
        failure: why the card cannot be used; empty if it can.
        uncorrected: volatile uncorrected ECC errors; None if the card does not count or report them.
    """

    failure: str = ""
    uncorrected: int | None = None


class _Record(msgspec.Struct):
    reason: str = ""
    since: float = 0.0
    is_failing: bool = False
    uncorrected: int | None = None


class Health:
    """The health of each card, by UUID."""

    def __init__(self, *, quiet_seconds: float, ignored_xids: Collection[int]) -> None:
        self._quiet_seconds = quiet_seconds
        self._ignored_xids = frozenset(ignored_xids)
        self._records: dict[str, _Record] = {}

    def add_event(self, event: CriticalEvent) -> bool:
        """Record an event; return whether it makes the card unhealthy."""
        if event.kind == "xid" and event.xid in self._ignored_xids:
            return False
        self._mark(event.uuid, str(event), now=event.at)
        return True

    def evaluate(self, uuid: str, probe: Probe, *, now: float) -> str:
        """Record a probe; return the reason why the card is unhealthy, or an empty string."""
        record = self._records.setdefault(uuid, _Record())
        if probe.uncorrected is not None:
            # Reloading the driver resets the count, so a smaller count is a new start and not an error.
            if record.uncorrected is not None and probe.uncorrected > record.uncorrected:
                self._mark(uuid, f"{probe.uncorrected} uncorrected ECC errors, {record.uncorrected} before", now=now)
            record.uncorrected = probe.uncorrected
        has_recovered = record.is_failing and not probe.failure
        record.is_failing = bool(probe.failure)
        if probe.failure:
            self._mark(uuid, probe.failure, now=now)
        elif has_recovered:
            record.since = now
        elif record.reason and now - record.since >= self._quiet_seconds:
            record.reason = ""
        return record.reason

    def _mark(self, uuid: str, reason: str, *, now: float) -> None:
        record = self._records.setdefault(uuid, _Record())
        record.reason = reason
        record.since = now
