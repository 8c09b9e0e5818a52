"""Metrics of a process's requests to the API server, and of the freshness of its caches."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.api_observer import ApiObserver, Cache

_REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_APPLY_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_DISTINCT_STATUSES: Final = {404, 409, 410, 429}
"""Client errors with a label value of their own; they have specific causes."""

_EXPECTED: Final = ("2xx", "5xx", "none")
_REASONS: Final = ("first", "regular", "gone", "lost")
"""Label values that start at 0, so that rates include the first occurrence."""


class TrafficMetrics(ApiObserver):
    """The metrics of one connection. No label contains the name of an object."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._caches: set[Cache] = set()
        self._targets: set[tuple[str, str]] = set()
        self._requests = Counter(
            "tranche_api_requests",
            "Requests to the API server, by response: a class such as 2xx, one of 404, 409, 410, 429, or none.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "tranche_api_request_seconds",
            "Time from a request to the beginning of its response.",
            ("verb", "resource"),
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._lists = Counter(
            "tranche_watch_lists",
            "Lists of the whole state, by reason: first, regular, gone (410) or lost (any other error).",
            ("resource", "reason"),
            registry=registry,
        )
        self._apply = Histogram(
            "tranche_watch_apply_seconds",
            "Time from the receipt of a watch event until its effects have been applied.",
            ("resource",),
            buckets=_APPLY_BUCKETS,
            registry=registry,
        )
        registry.register(_Caches(self._caches))

    def answered(self, method: str, path: str, params: Mapping[str, str], *, status: int, seconds: float) -> None:
        """Count a request whose response began `seconds` later; `status` is 0 without a response."""
        verb, resource = _target(method, path, params)
        if (verb, resource) not in self._targets:
            self._targets.add((verb, resource))
            for code in _EXPECTED:
                self._requests.labels(verb, resource, code)
        self._requests.labels(verb, resource, _code(status)).inc()
        if status:
            self._seconds.labels(verb, resource).observe(seconds)

    def listed(self, resource: str, reason: str) -> None:
        """Count a list of the whole state."""
        self._lists.labels(resource, reason).inc()

    def applied(self, resource: str, seconds: float) -> None:
        """Record how long an event of a watch waited and took."""
        self._apply.labels(resource).observe(seconds)

    @contextmanager
    def following(self, cache: Cache) -> Iterator[None]:
        """Include `cache` in the metrics while the block runs."""
        self._caches.add(cache)
        for reason in _REASONS:
            self._lists.labels(cache.plural, reason)
        try:
            yield
        finally:
            self._caches.discard(cache)


class _Caches(Collector):
    """The present caches. If two have the same kind, the longer silence and the larger number are shown."""

    def __init__(self, caches: set[Cache]) -> None:
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """Return the gauges."""
        silence = GaugeMetricFamily(
            "tranche_watch_silent_seconds",
            "Time since the API server last sent an event, a bookmark or a page of a list.",
            labels=("resource",),
        )
        objects = GaugeMetricFamily("tranche_watch_objects", "Objects in the cache.", labels=("resource",))
        by_kind: defaultdict[str, list[Cache]] = defaultdict(list)
        for cache in self._caches:
            by_kind[cache.plural].append(cache)
        for kind, caches in sorted(by_kind.items()):
            silence.add_metric((kind,), max(cache.silent_seconds for cache in caches))
            objects.add_metric((kind,), max(len(cache) for cache in caches))
        yield from (silence, objects)


def _target(method: str, path: str, params: Mapping[str, str]) -> tuple[str, str]:
    """Return the verb and the resource, with its subresource, as in RBAC rules."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join([*parts[:1], *parts[2:3]]) or "none"
    if method == "GET":
        return ("watch" if "watch" in params else "get" if len(parts) > 1 else "list"), resource
    return _VERBS[method], resource


def _code(status: int) -> str:
    if not status:
        return "none"
    return str(status) if status in _DISTINCT_STATUSES else f"{status // 100}xx"
