"""When a card is unhealthy, and when it is healthy again. Pure: events, probes and the time come in as arguments.

A card is unhealthy from any of these on: a critical XID or a double-bit ECC error that its driver reports, an increase
of its uncorrected ECC errors, a probe that fails. It is healthy again after `quiet_seconds` without any of these, which
after failed probes begin with the first that succeeds. A card that needs a reset fails its probes until it got one.
"""

from collections.abc import Collection
from typing import Literal

import msgspec

EventKind = Literal["xid", "double-bit-ecc"]


class CriticalEvent(msgspec.Struct, frozen=True):
    """What a driver reported of a card at a time; `xid` is its number where it is one."""

    uuid: str
    kind: EventKind
    at: float
    xid: int = 0

    def __str__(self) -> str:
        return f"XID {self.xid}" if self.kind == "xid" else "double-bit ECC error"


class Probe(msgspec.Struct, frozen=True):
    """What one look at a card found.

    Attributes:
        failure: why the card cannot be used; empty where it can.
        uncorrected: volatile uncorrected ECC errors; None where the card does not count or tell them.
    """

    failure: str = ""
    uncorrected: int | None = None


class _Record(msgspec.Struct):
    trouble: str = ""
    since: float = 0.0
    failing: bool = False
    uncorrected: int | None = None


class Health:
    """The ills of each card, by UUID."""

    def __init__(self, *, quiet_seconds: float, ignored_xids: Collection[int]) -> None:
        self._quiet_seconds = quiet_seconds
        self._ignored_xids = frozenset(ignored_xids)
        self._records: dict[str, _Record] = {}

    def take(self, event: CriticalEvent) -> bool:
        """Take what a driver reported; answer whether it makes the card unhealthy."""
        if event.kind == "xid" and event.xid in self._ignored_xids:
            return False
        self._mark(event.uuid, str(event), now=event.at)
        return True

    def judge(self, uuid: str, probe: Probe, *, now: float) -> str:
        """Take what a look at a card found; answer why the card is unhealthy, empty where it is healthy."""
        record = self._records.setdefault(uuid, _Record())
        if probe.uncorrected is not None:
            # The count starts anew when the driver is loaded again, so a smaller one is a new beginning.
            if record.uncorrected is not None and probe.uncorrected > record.uncorrected:
                self._mark(uuid, f"{probe.uncorrected} uncorrected ECC errors, {record.uncorrected} before", now=now)
            record.uncorrected = probe.uncorrected
        recovered = record.failing and not probe.failure
        record.failing = bool(probe.failure)
        if probe.failure:
            self._mark(uuid, probe.failure, now=now)
        elif recovered:
            record.since = now
        elif record.trouble and now - record.since >= self._quiet_seconds:
            record.trouble = ""
        return record.trouble

    def _mark(self, uuid: str, trouble: str, *, now: float) -> None:
        record = self._records.setdefault(uuid, _Record())
        record.trouble = trouble
        record.since = now
