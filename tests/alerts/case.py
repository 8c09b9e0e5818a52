"""When each alert fires and when it does not, as series of one sample a minute (promtool's notation).

Cluster `a` has the series with which the alert fires; the other clusters, at the same time, have those with which it
does not. A value that is only just good is better than one that is far from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Series = dict[str, str]
"""Values by metric and labels."""


@dataclass(frozen=True, slots=True)
class Case:
    """One alert.

    Attributes:
        alert: its name.
        minute: the first in which it fires, its `for` after the first in which its condition holds.
        fires: the series of cluster `a`.
        quiet: the series of each further cluster.
        summary: its text.
        labels: those of the alert, other than cluster and severity.
    """

    alert: str
    minute: int
    fires: Series
    quiet: tuple[Series, ...]
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)


def buckets(metric: str, labels: str, counts: Mapping[str, int]) -> Series:
    """Return the buckets of a histogram whose counters grow by these counts every minute."""
    return {f'{metric}_bucket{{{labels}le="{bound}"}}': f"0+{count}x40" for bound, count in counts.items()}


INFO = "tranche_build_info"
"""What every process exports."""
