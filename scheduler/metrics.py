"""What an operator measures of the scheduler: every phase of a decision, and what came of it."""

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import Counter, Histogram

from allocation.ledger import Ledger
from cluster.exposition import Registry
from scheduler.binder import Outcome, Trouble
from scheduler.card_metrics import Cards, CardStates
from scheduler.cycle import Way

_DECIDE_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_BIND_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)


class Metrics:
    """The scheduler's metrics, in a registry of their own."""

    def __init__(self, *, ledger: Callable[[], Ledger | None]) -> None:
        """Measure; `ledger` answers that of the term under way, None where there is none."""
        self.registry = Registry()
        self.registry.large.append(Cards(ledger).text)
        self.registry.register(CardStates(ledger))
        self.decisions = self._counter("decisions", "Decisions by outcome.", "outcome")
        self.queue_seconds = self._histogram(
            "queue_seconds", "From when a pod was first seen until it was given a node.", _WAIT_BUCKETS
        )
        self.attempt_wait_seconds = self._histogram(
            "attempt_wait_seconds", "From when a pod was due to be decided until that began.", _WAIT_BUCKETS
        )
        self.decide_seconds = self._histogram(
            "decide_seconds",
            "One decision: short by what is remembered of the pod's like, long over every node, node for the one that"
            " kube-scheduler chose.",
            _DECIDE_BUCKETS,
            "way",
        )
        self.bind_seconds = self._histogram(
            "bind_seconds",
            "From the decision to the outcome of its Binding, with the wait for a node's lock and every repetition.",
            _BIND_BUCKETS,
        )
        self.created_to_bound_seconds = self._histogram(
            "created_to_bound_seconds",
            "From a pod's creationTimestamp, which has whole seconds of the API server's clock, to its Binding.",
            _WAIT_BUCKETS,
        )
        self.extender_seconds = self._histogram(
            "extender_seconds", "Calls of kube-scheduler: filter, prioritize, bind.", _BIND_BUCKETS, "verb"
        )
        self.bind_troubles = self._counter(
            "bind_troubles",
            "Answers to a Binding other than that it is done: conflict (409), gone (404), unknown (none, or 5xx: it is"
            " sent again), fenced (another leader), refused (for any other reason).",
            "kind",
        )
        self.lock_wait_seconds = self._histogram(
            "lock_wait_seconds", "How long a pod waited for the lock of a node of HAMi's device plugin.", _WAIT_BUCKETS
        )
        self.terms = self._counter("terms", "Terms of leading that this replica has begun.")
        self.recounts = self._counter("recounts", "Times that the ledger was held against the pods.")
        self.divergences = self._counter(
            "ledger_divergences", "Pods and cards of which the ledger had other numbers than a recount."
        )

        # Shown as 0 before it happens, so that its first time can be told from its being unknown.
        for outcome in ("waiting", *(each.value for each in Outcome)):
            self.decisions.labels(outcome)
        for trouble in get_args(Trouble):
            self.bind_troubles.labels(trouble)
        for way in get_args(Way):
            self.decide_seconds.labels(way)
        for verb in ("filter", "prioritize", "bind"):
            self.extender_seconds.labels(verb)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tranche_scheduler_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"tranche_scheduler_{name}", text, labels, buckets=buckets, registry=self.registry)
