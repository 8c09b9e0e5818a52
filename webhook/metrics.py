"""The webhook's metrics."""

from typing import Final, Literal, get_args

from prometheus_client import Counter, Gauge, Histogram

from cluster.http.exposition import Registry

_BUCKETS_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

Outcome = Literal["mutated", "untouched", "refused", "malformed", "error"]
OUTCOMES: Final = get_args(Outcome)


class Metrics:
    """Reviews by outcome, response times, and the expiry of certificates.

    Attributes:
        registry: the metrics of `/metrics`.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        self.reviews = Counter(
            "tranche_webhook_reviews",
            "Admission reviews by outcome: mutated, untouched, refused, malformed, error.",
            ("outcome",),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tranche_webhook_review_seconds",
            "Time from receiving a review's body to its response.",
            buckets=_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "tranche_webhook_certificate_expiry_seconds",
            "Seconds until a certificate expires: leaf (the certificate of this replica) or authority (its signer).",
            ("certificate",),
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self.reviews.labels(outcome)
