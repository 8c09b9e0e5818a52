"""Conditions in the statuses of objects, as Kubernetes has them."""

from collections.abc import Iterable
from typing import Protocol


class Condition(Protocol):
    """What every condition has, of whatever kind of object."""

    @property
    def type(self) -> str:
        """What it is about."""

    @property
    def status(self) -> str:
        """Whether it is so: True, False or Unknown."""

    @property
    def last_transition_time(self) -> str:
        """When `status` last changed."""


def transition_time(kind: str, status: str, *, before: Iterable[Condition], now: str) -> str:
    """Return the `lastTransitionTime` of a condition: that of `before`, the last conditions, if it had this status."""
    since = (each.last_transition_time for each in before if (each.type, each.status) == (kind, status))
    return next(since, now)
