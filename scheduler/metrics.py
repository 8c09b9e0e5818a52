"""What an operator measures of the scheduler."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The scheduler's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            "tranche_scheduler_decisions", "Decisions by outcome.", ["outcome"], registry=self.registry
        )
        self.bind_seconds = Histogram(
            "tranche_scheduler_bind_seconds",
            "From the decision to the outcome of its Binding.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
