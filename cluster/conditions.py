"""Conditions in the statuses of objects, as Kubernetes has them."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol


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


VALID: Final = "Valid"
"""The type of the condition that says whether every limit of a GpuQuota or GpuQueue has an effect."""


def validity(problems: Sequence[str]) -> tuple[Literal["True", "False"], str, str]:
    """Return status, reason and message of condition `Valid` with these problems, one sentence each."""
    if problems:
        return "False", "UnknownResource", "; ".join(problems)
    return "True", "ResourcesKnown", "every limit is on a resource that is counted"


def transition_time(kind: str, status: str, *, before: Iterable[Condition], now: str) -> str:
    """Return the `lastTransitionTime` of a condition: that of `before`, the last conditions, if it had this status."""
    since = (each.last_transition_time for each in before if (each.type, each.status) == (kind, status))
    return next(since, now)
