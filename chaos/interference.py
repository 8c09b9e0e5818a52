"""What a proxy does to the traffic of one process, and how often it did."""

import enum
from collections import Counter
from collections.abc import Callable
from random import Random

LATE_SECONDS = 1.0
"""Less than the time limit that a Binding carries: no network holds back what the API server has given up."""


class Fate(enum.Enum):
    """What becomes of one request."""

    PASS = "pass"  # noqa: S105 -- no password
    CUT = "cut before it is sent"
    BUSY = "429"
    LOSE = "taken, its answer lost"
    TRUNCATE = "taken, half of its answer lost"
    LATE = "cut, and sent on later"


class Stage(enum.Enum):
    """Where a Binding is when somebody waits for it."""

    ASKED = "before it reaches the API server"
    ANSWERED = "before its answer reaches the scheduler"


class Interference:
    """The rules of one proxy. All of them are off at first.

    Attributes:
        cut: no request gets through, every connection is closed.
        delay_seconds: each answer comes so much later.
        late_events_seconds: each piece of a watch comes so much later than the one before it was passed on.
        busy: the share of requests that are answered 429.
        lost_bindings: the share of Bindings whose answer is lost once they are taken.
        truncated_bindings: the share of Bindings of whose answer half is lost.
        cut_bindings: the share of Bindings that are cut before they are sent.
        late_bindings: the share of Bindings that are cut, and reach the API server `LATE_SECONDS` later all the same.
        counts: how often what happened.
    """

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._ambush: tuple[Stage, Callable[[], None]] | None = None
        self._unharmed = 0
        self.counts: Counter[str] = Counter()
        self.heal()

    def heal(self) -> None:
        """Let everything through again."""
        self.cut = False
        self.delay_seconds = self.late_events_seconds = 0.0
        self.busy = self.lost_bindings = self.truncated_bindings = self.cut_bindings = self.late_bindings = 0.0

    def fate(self, *, is_binding: bool) -> Fate:
        """Answer what becomes of a request."""
        if self.cut:
            return Fate.CUT
        if self._draw.random() < self.busy:
            return Fate.BUSY
        if is_binding:
            at = self._draw.random()
            for share, fate in (
                (self.lost_bindings, Fate.LOSE),
                (self.truncated_bindings, Fate.TRUNCATE),
                (self.cut_bindings, Fate.CUT),
                (self.late_bindings, Fate.LATE),
            ):
                if at < share:
                    return fate
                at -= share
        return Fate.PASS

    def lie_in_wait(self, stage: Stage, act: Callable[[], None], *, unharmed: int = 0) -> None:
        """Call `act` once, when a Binding is at `stage`, after so many that went unharmed."""
        self._ambush, self._unharmed = (stage, act), unharmed

    def passes(self, stage: Stage) -> None:
        """A Binding is at `stage`."""
        if self._ambush is None or self._ambush[0] is not stage:
            return
        if self._unharmed:
            self._unharmed -= 1
            return
        _, act = self._ambush
        self._ambush = None
        act()
