"""`kubectl gpu report`: the GPU-hours of each namespace and queue, from what Prometheus has read of the schedulers."""

import argparse
import math
import re
from typing import Final

import msgspec

from cli.errors import CommandError, UsageError
from cli.kube.session import Session
from cli.report.prometheus import Prometheus
from cli.tables import NOTHING, Table, note, render

HOURS: Final = (
    "sum by (namespace, queue) (increase(tranche_allocated_card_seconds_total{{{selector}}}[{since}])) / 3600"
)
KNOWN: Final = "avg_over_time((max(tranche_scheduler_leading{{{selector}}}) or vector(0))[{since}:1m])"
"""The part of the time for which Prometheus has read a leading scheduler."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SINCE: Final = re.compile(r"[1-9][0-9]{0,4}[mhdw]")
_ALL: Final = 0.99
"""From this part on the whole time counts as known: a change of leaders takes seconds."""
_OTHERS: Final = "<others>"


class GpuHours(msgspec.Struct, frozen=True):
    """The hours of whole cards that the pods of a namespace have held, charged to a queue.

    Attributes:
        namespace: empty for all that were beyond the bound of the metric.
        queue: the GpuQueue; empty for the namespace's own queue.
    """

    namespace: str
    queue: str
    hours: float


class Report(msgspec.Struct, frozen=True, rename={"known_ratio": "knownRatio"}):
    """The output of `kubectl gpu report -o json`: the largest consumers first.

    Attributes:
        since: how far the report goes back.
        known_ratio: the part of that time for which Prometheus has read a leading scheduler: 0 to 1. What pods held in
            the rest is not counted.
    """

    since: str
    known_ratio: float
    consumers: tuple[GpuHours, ...]

    def table(self) -> Table:
        """Return a table with a row for each namespace and queue."""
        rows = [(each.namespace or _OTHERS, each.queue or NOTHING, f"{each.hours:.2f}") for each in self.consumers]
        return Table(("NAMESPACE", "QUEUE", "GPU-HOURS"), rows)


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the report."""
    if not _SINCE.fullmatch(arguments.since):
        raise UsageError(f"--since {arguments.since}: give a number and a unit, m, h, d or w, such as 24h or 30d")
    if not arguments.prometheus:
        raise CommandError(
            "GPU-hours are kept by Prometheus, which must be named: --prometheus NAMESPACE/SERVICE:PORT, such as"
            " monitoring/prometheus-operated:9090, or its URL (docs/usage.md)"
        )
    namespace = "" if arguments.all_namespaces else arguments.namespace
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"--namespace {namespace}: not the name of a namespace")
    found = read(
        Prometheus(arguments.prometheus, session.access),
        since=arguments.since,
        namespace=namespace,
        cluster=arguments.cluster_label,
    )
    if not found.consumers:
        note(
            f"Prometheus has no GPU-hours of the last {found.since}{f' in namespace {namespace}' if namespace else ''}"
        )
    if found.known_ratio < _ALL:
        note(
            f"Prometheus has read a leading scheduler for {found.known_ratio:.0%} of the last {found.since}; what pods"
            " held in the rest is not counted"
        )
    print(render(found, found.table(), output=arguments.output, headers=not arguments.no_headers), end="")
    return 0


def read(prometheus: Prometheus, *, since: str, namespace: str = "", cluster: str = "") -> Report:
    """Return the report of the time `since`, of one namespace or of all if it is empty."""
    of_cluster = [f'cluster="{cluster}"'] if cluster else []
    of_namespace = [f'namespace="{namespace}"'] if namespace else []
    hours = prometheus.query(HOURS.format(selector=",".join(of_cluster + of_namespace), since=since))
    known = prometheus.query(KNOWN.format(selector=",".join(of_cluster), since=since))
    consumers = [
        GpuHours(labels.get("namespace", ""), labels.get("queue", ""), round(value, 4))
        for labels, value in hours
        if math.isfinite(value) and value > 0
    ]
    consumers.sort(key=lambda each: (-each.hours, each.namespace, each.queue))
    ratio = next((value for _, value in known if math.isfinite(value)), 0.0)
    return Report(since, round(min(max(ratio, 0.0), 1.0), 4), tuple(consumers))
