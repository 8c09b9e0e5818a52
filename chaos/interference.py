"""What a proxy does to the traffic of one process, with counts."""

import enum
from collections import Counter
from collections.abc import Callable
from random import Random

LATE_SECONDS = 1.0
"""Shorter than the time limit of a Binding: the API server must not have given the request up when it arrives."""


class Treatment(enum.Enum):
    """What the proxy does to one request."""

    PASS = "pass"  # noqa: S105 -- not a password
    CUT = "cut before it was sent"
    BUSY = "429"
    LOSE = "applied, response lost"
    TRUNCATE = "applied, half of the response lost"
    LATE = "cut, then delivered late"


class Stage(enum.Enum):
    """Points at which a Binding can trigger a callback."""

    REQUEST = "before it reaches the API server"
    RESPONSE = "before its response reaches the scheduler"


class Interference:
    """The rules of one proxy. All of them are off initially.

    Attributes:
        cut: no request gets through, and every connection is closed.
        delay_seconds: delay of each response.
        late_events_seconds: delay of each chunk of a watch after the previous one was passed on.
        busy: share of requests that get the response 429.
        lost_bindings: share of Bindings that are applied and whose response is lost.
        truncated_bindings: share of Bindings that are applied and lose half of their response.
        cut_bindings: share of Bindings that are cut before they are sent.
        late_bindings: share of Bindings that are cut for their sender, but reach the API server `LATE_SECONDS` later.
        counts: number of requests by treatment.
    """

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._callback: tuple[Stage, Callable[[], None]] | None = None
        self._skip = 0
        self.counts: Counter[str] = Counter()
        self.heal()

    def heal(self) -> None:
        """Switch all rules off."""
        self.cut = False
        self.delay_seconds = self.late_events_seconds = 0.0
        self.busy = self.lost_bindings = self.truncated_bindings = self.cut_bindings = self.late_bindings = 0.0

    def treatment(self, *, is_binding: bool) -> Treatment:
        """Draw what to do to a request."""
        if self.cut:
            return Treatment.CUT
        if self._draw.random() < self.busy:
            return Treatment.BUSY
        if is_binding:
            at = self._draw.random()
            for share, treatment in (
                (self.lost_bindings, Treatment.LOSE),
                (self.truncated_bindings, Treatment.TRUNCATE),
                (self.cut_bindings, Treatment.CUT),
                (self.late_bindings, Treatment.LATE),
            ):
                if at < share:
                    return treatment
                at -= share
        return Treatment.PASS

    def call_at(self, stage: Stage, callback: Callable[[], None], *, skip: int = 0) -> None:
        """Call `callback` once, when a Binding reaches `stage`, after skipping `skip` Bindings."""
        self._callback, self._skip = (stage, callback), skip

    def reached(self, stage: Stage) -> None:
        """Run the callback if it is due: a Binding has reached `stage`."""
        if self._callback is None or self._callback[0] is not stage:
            return
        if self._skip:
            self._skip -= 1
            return
        _, callback = self._callback
        self._callback = None
        callback()
