"""The scheduling time that a queue may use before its pods wait behind those of other queues.

Scheduling time is a debt, which is paid off as time passes. The pods of a queue beyond its credit are scheduled when
no queue within its credit has a pod to schedule, the smallest debt first. So no time is left unused.
"""

from typing import Final

CREDIT_SECONDS: Final = 0.25
"""The debt up to which a queue has credit: its pods compete with all others."""
REPAID_SHARE: Final = 0.1
"""Seconds of debt that are paid off per second."""
FREE_SECONDS: Final = 0.002
"""The free share of a decision that places its pod: several times what such a decision takes on 5,000 nodes."""


class Budget:
    """The debt of one queue; `now` is monotonic, in seconds."""

    __slots__ = ("_at", "_debt")

    def __init__(self) -> None:
        self._debt = 0.0
        self._at = 0.0

    def charge(self, seconds: float, *, now: float) -> None:
        """Add the cost of a decision."""
        self._debt, self._at = self.debt(now) + seconds, now

    def debt(self, now: float) -> float:
        """Return the remaining debt in seconds."""
        if self._debt:
            self._debt, self._at = max(0.0, self._debt - REPAID_SHARE * (now - self._at)), now
        return self._debt

    def has_credit(self, now: float) -> bool:
        """Whether the queue's pods compete with all others."""
        return self._debt <= CREDIT_SECONDS or self.debt(now) <= CREDIT_SECONDS


def cost(seconds: float, *, placed: bool) -> float:
    """Return what a decision costs its queue; one that placed its pod costs only the time beyond `FREE_SECONDS`."""
    return max(0.0, seconds - FREE_SECONDS) if placed else seconds
