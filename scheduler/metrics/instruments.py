"""Metrics of the scheduler: the phases of scheduling and binding, and their outcomes."""

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import Counter, Histogram

from allocation.ledger.ledger import Ledger
from cluster.http.exposition import Registry
from scheduler.metrics.cards import Cards, CardStates
from scheduler.metrics.labels import (
    BindError,
    DifferenceKind,
    EvictionOutcome,
    ExpansionOutcome,
    GangOutcome,
    Outcome,
    Path,
    ResizeOutcome,
)

_DECIDE_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_BIND_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)


class Metrics:
    """The scheduler's metrics, in a registry of their own."""

    def __init__(self) -> None:
        """Create the instruments. Metrics of cards follow with `show_cards`."""
        self.registry = Registry()
        self.decisions = self._counter("decisions", "Scheduling decisions by outcome.", "outcome")
        self.queue_seconds = self._histogram(
            "queue_seconds", "From when a pod was first seen until a node was reserved for it.", _WAIT_BUCKETS
        )
        self.active_queue_seconds = self._histogram(
            "active_queue_seconds", "From when a pod was due to be scheduled until that began.", _WAIT_BUCKETS
        )
        self.scheduling_seconds = self._histogram(
            "scheduling_seconds",
            "One scheduling cycle, by path: cached (rankings remembered for equal pods), full (every node),"
            " single_node (the node that kube-scheduler chose).",
            _DECIDE_BUCKETS,
            "path",
        )
        self.gang_seconds = self._histogram("gang_seconds", "One decision about all pods of a gang.", _DECIDE_BUCKETS)
        self.gang_outcomes = self._counter(
            "gang_outcomes",
            "Decisions about gangs: bound (as many pods as necessary), refused (their Bindings, volumes or Leases),"
            " rejected (too few pods have a place); and timed_out (the timeout passed).",
            "outcome",
        )
        self.bind_seconds = self._histogram(
            "bind_seconds",
            "From the end of the scheduling cycle, or from when the pod's claims have volumes, to the outcome of the"
            " Binding, with lock waits and all attempts.",
            _BIND_BUCKETS,
        )
        self.created_to_bound_seconds = self._histogram(
            "created_to_bound_seconds",
            "From a pod's creationTimestamp, which has whole seconds of the API server's clock, to its Binding.",
            _WAIT_BUCKETS,
        )
        self.extender_seconds = self._histogram(
            "extender_seconds", "Calls of kube-scheduler: filter, prioritize, preempt, bind.", _BIND_BUCKETS, "verb"
        )
        self.preemptions = self._counter(
            "preemptions",
            "Pods for which others were evicted: evicted, refused (by a PodDisruptionBudget, a policy or a missing"
            " right), unknown (no response), gone (the pod was deleted), deposed (another replica leads).",
            "outcome",
        )
        self.victims = self._counter("victims", "Pods that were evicted for others of higher priority.")
        self.consolidations = self._counter(
            "consolidations",
            "Pods for which others were moved: placed, gone (deleted, or a pod of higher rank took the cards), refused"
            " (an eviction), not_back (a moved pod has not got a node again in time), late (a moved pod has not ended"
            " in time).",
            "outcome",
        )
        self.moved_pods = self._counter("moved_pods", "Pods that were evicted to be moved to other nodes.")
        self.expansions = self._counter(
            "expansions",
            "Requests for nodes that have ended: answered (a node has come), expired (none has come in time), idle (no"
            " pod waited for it any more), refused (the request was not created).",
            "outcome",
        )
        self.resizes = self._counter(
            "resizes",
            "Sizes that users wished for running pods: resized, exceeded (too little is left of the cards or a quota),"
            " refused (for any other reason). A wish counts again when its reason changes.",
            "outcome",
        )
        self.bind_errors = self._counter(
            "bind_errors",
            "Bindings that were not acknowledged: conflict (409), gone (404), unknown (no response or 5xx; it is sent"
            " again), fenced (another replica leads), refused (for any other reason).",
            "kind",
        )
        self.lock_wait_seconds = self._histogram(
            "lock_wait_seconds",
            "How long a pod waited for a node's lock of HAMi's device plugin.",
            _WAIT_BUCKETS,
        )
        self.volume_wait_seconds = self._histogram(
            "volume_wait_seconds",
            "How long a pod with unbound claims waited, before its Binding, until they had volumes or it gave up.",
            _WAIT_BUCKETS,
        )
        self.terms = self._counter("terms", "Terms that this replica has led.")
        self.ledger_comparisons = self._counter(
            "ledger_comparisons", "Comparisons of the ledger with a recount from the pods."
        )
        self.ledger_differences = self._counter(
            "ledger_differences",
            "What the ledger counted otherwise than a recount; the term ended, and another one counted again.",
            "kind",
        )

        # Label values are shown as 0 before they occur, so that the first occurrence counts as an increase.
        for outcome in ("unschedulable", *(each.value for each in Outcome)):
            self.decisions.labels(outcome)
        for gang_outcome in GangOutcome:
            self.gang_outcomes.labels(gang_outcome.value)
        for eviction in EvictionOutcome:
            self.preemptions.labels(eviction.value)
        for expansion in ExpansionOutcome:
            self.expansions.labels(expansion.value)
        for resize in ResizeOutcome:
            self.resizes.labels(resize.value)
        for kind in get_args(BindError):
            self.bind_errors.labels(kind)
        for counted in get_args(DifferenceKind):
            self.ledger_differences.labels(counted)
        for path in get_args(Path):
            self.scheduling_seconds.labels(path)
        for verb in ("filter", "prioritize", "preempt", "bind"):
            self.extender_seconds.labels(verb)

    def show_cards(self, ledger: Callable[[], Ledger | None]) -> None:
        """Add metrics of the cards; `ledger` returns the ledger of the current term, or None outside a term."""
        self.registry.large.append(Cards(ledger).text)
        self.registry.register(CardStates(ledger))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tranche_scheduler_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"tranche_scheduler_{name}", text, labels, buckets=buckets, registry=self.registry)
