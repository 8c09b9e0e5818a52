"""What an operator measures of the term under way: who waits and why, which nodes are closed, locks and wishes."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation.reasons import CardReason
from cluster.events import Recorder
from scheduler import cycle, node_reasons
from scheduler.node_reasons import NodeReason
from scheduler.state import State

CODES: Final = (
    *(reason.name for reason in CardReason if reason is not CardReason.FITS),
    *(reason.value for reason in NodeReason),
    *(cycle.HELD, cycle.INSTANCE_ASKED, cycle.NO_NODE),
)
"""Every code of why a pod may wait."""


class Locks(Protocol):
    """The locks of nodes that HAMi's device plugin serves."""

    queued: int

    @property
    def ages(self) -> list[float]:
        """Answer since how many seconds each lock stands."""


class Term(Protocol):
    """A term of leading."""

    @property
    def state(self) -> State:
        """Answer what it knows."""

    @property
    def locks(self) -> Locks:
        """Answer the locks that it sees."""


class Standing(Collector):
    """Read when asked. A replica that stands by shows that it does, and nothing of what another one knows."""

    def __init__(self, *, term: Callable[[], Term | None], recorder: Recorder) -> None:
        """Show what `term` answers, None where this replica does not decide."""
        self._term = term
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        """Answer the gauges as they are now."""
        term = self._term()
        leading = GaugeMetricFamily("tranche_scheduler_leading", "1 while this replica decides, else 0.")
        leading.add_metric((), float(term is not None))
        dropped = CounterMetricFamily(
            "tranche_scheduler_events_dropped", "Events that were not written, because too many were waiting."
        )
        dropped.add_metric((), self._recorder.dropped)
        yield from (leading, dropped)
        if term is not None:
            yield from _queue(term.state)
            yield from _nodes(term.state)
            yield from _locks(term.locks)


def _queue(state: State) -> Iterator[Metric]:
    pods = GaugeMetricFamily(
        "tranche_scheduler_pods",
        "Pods without a node: active (to be decided), backing_off, waiting for a cure, binding.",
        labels=("state",),
    )
    for where, count in state.queue.depths().items():
        pods.add_metric((where,), count)
    reasons = GaugeMetricFamily(
        "tranche_scheduler_waiting_pods",
        "Pods whose last decision found no node, by each reason of it: one pod may have several.",
        labels=("reason",),
    )
    counts = Counter(code for entry in state.queue for code in entry.reasons)
    for reason in CODES:
        reasons.add_metric((reason,), counts[reason])
    yield from (pods, reasons)


def _nodes(state: State) -> Iterator[Metric]:
    nodes = GaugeMetricFamily("tranche_scheduler_nodes", "Nodes with cards.")
    nodes.add_metric((), len(state.ledger.nodes))
    closed = GaugeMetricFamily(
        "tranche_scheduler_closed_nodes", "Nodes that take no GPU pods, by the code of the reason.", labels=("reason",)
    )
    counts = Counter(map(node_reasons.of_text, state.closed().values()))
    for reason in sorted({*node_reasons.CLOSING, *counts}):
        closed.add_metric((reason,), counts[reason])
    wishes = GaugeMetricFamily("tranche_scheduler_mig_wishes", "MIG instances that agents are asked for, or keep.")
    wishes.add_metric((), len(state.wishes))
    yield from (nodes, closed, wishes)


def _locks(locks: Locks) -> Iterator[Metric]:
    ages = locks.ages
    held = GaugeMetricFamily("tranche_scheduler_node_locks", "Nodes of HAMi's device plugin that are locked.")
    held.add_metric((), len(ages))
    oldest = GaugeMetricFamily(
        "tranche_scheduler_node_lock_age_seconds", "Since when the oldest of these locks is seen; 0 without any."
    )
    oldest.add_metric((), max(ages, default=0.0))
    queued = GaugeMetricFamily("tranche_scheduler_node_lock_queue", "Pods that wait for the lock of their node.")
    queued.add_metric((), locks.queued)
    yield from (held, oldest, queued)
