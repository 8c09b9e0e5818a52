"""Metrics of the current term: waiting pods, holds, claims, bindings, queues, quotas, nodes, locks, MIG requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allocation import quota
from allocation.bindings import problems
from allocation.bindings.problems import BindingProblem
from allocation.fairness.queue_spec import QueueKey
from allocation.reasons import CLOSING, CardReason, NodeReason, PodReason
from cluster.events import Recorder
from scheduler.claims.users import ORDER
from scheduler.dra.foreign import STATES
from scheduler.fairness import quota_use
from scheduler.fairness.standings import Standings
from scheduler.gangs.gang import GangState
from scheduler.holds import HoldCause
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.metrics.cards import ZONE
from scheduler.state.cluster_state import ClusterState

CODES: Final = (
    *(reason.name for reason in CardReason if reason is not CardReason.FITS),
    *(reason.value for reason in NodeReason),
    *(reason.value for reason in PodReason),
)
"""All codes of reasons why a pod is not placed."""


_MOST_MISSING: Final = 20
"""The most series of GpuQueues that do not exist, whatever namespaces name."""


class Locks(Protocol):
    """The locks of nodes that HAMi's device plugin serves."""

    queued: int

    @property
    def ages(self) -> list[float]:
        """The age of each lock in seconds."""


class Term(Protocol):
    """A term of leading."""

    @property
    def state(self) -> ClusterState:
        """The state of the cluster."""

    @property
    def locks(self) -> Locks:
        """The locks of its nodes."""

    @property
    def kube_scheduler(self) -> KubeSchedulerLease | None:
        """The Lease of the kube-scheduler that it works with; None without one."""


class StateCollector(Collector):
    """Reads the metrics of the current term at each scrape. A standby replica shows only that it does not lead."""

    def __init__(self, *, term: Callable[[], Term | None], recorder: Recorder) -> None:
        """Read the term that `term` returns, None while this replica does not schedule."""
        self._term = term
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        term = self._term()
        leading = GaugeMetricFamily("tranche_scheduler_leading", "1 while this replica decides, else 0.")
        leading.add_metric((), float(term is not None))
        dropped = CounterMetricFamily(
            "tranche_scheduler_events_dropped", "Events that were not written because too many were queued."
        )
        dropped.add_metric((), self._recorder.dropped)
        yield from (leading, dropped)
        if term is not None:
            yield from _queue(term.state)
            yield _holds(term.state)
            yield _claims(term.state)
            yield _gangs(term.state)
            if term.state.bindings.is_on:
                yield from _bindings(term.state)
            if term.state.fair_share.queues:
                yield from _queues(term.state)
            yield _missing_queues(term.state)
            yield from _quotas(term.state)
            yield from _resource_quotas(term.state)
            yield _allocated_time(term.state)
            yield from _nodes(term.state)
            yield from _dra(term.state)
            if term.state.settings.hands_over:
                yield from _handed_over(term.state, term.kube_scheduler)
            yield from _locks(term.locks)


def _queue(state: ClusterState) -> Iterator[Metric]:
    pods = GaugeMetricFamily(
        "tranche_scheduler_pods",
        "Pods without a node: active (due), backoff (its Binding failed), unschedulable (until an event), binding.",
        labels=("state",),
    )
    for where, count in state.queue.depths().items():
        pods.add_metric((where,), count)
    reasons = GaugeMetricFamily(
        "tranche_scheduler_waiting_pods",
        "Unschedulable pods, by each reason of their last scheduling decision: one pod may have several.",
        labels=("reason",),
    )
    counts = Counter(code for entry in state.queue for code in entry.reasons)
    for reason in CODES:
        reasons.add_metric((reason,), counts[reason])
    yield from (pods, reasons)


def _holds(state: ClusterState) -> Metric:
    holds = GaugeMetricFamily(
        "tranche_scheduler_holds",
        "Pods for which cards are held while others still use them: for the patience of their queue, because others"
        " are preempted or moved for them, or because they are moved themselves.",
        labels=("reason",),
    )
    counts = Counter(hold.cause for hold in state.holds)
    for cause in get_args(HoldCause):
        holds.add_metric((cause,), counts[cause])
    return holds


def _claims(state: ClusterState) -> Metric:
    claims = GaugeMetricFamily(
        "tranche_scheduler_gpu_claims", "GpuClaims, by the phase of the pod that got least far.", labels=("phase",)
    )
    counts = state.claims.phases()
    for phase in ORDER:
        claims.add_metric((phase,), counts[phase])
    return claims


def _gangs(state: ClusterState) -> Metric:
    """Return how many gangs there are by state; which gangs, the API says: users name them."""
    gangs = GaugeMetricFamily(
        "tranche_scheduler_gangs",
        "Gangs: Incomplete (fewer pods than necessary exist), Waiting, Binding, Running, Partial (some pods have nodes,"
        " but fewer than necessary), Finished.",
        labels=("state",),
    )
    counts = Counter(gang.state for gang in state.gangs)
    for each in get_args(GangState):
        gangs.add_metric((each,), counts[each])
    return gangs


def _queues(state: ClusterState) -> Iterator[Metric]:
    """Yield the metrics of GpuQueues; namespaces' own queues are left out, because users name namespaces."""
    labels = ("queue",)
    share = GaugeMetricFamily("tranche_queue_share_ratio", "Dominant share of the GpuQueue: 0 to 1.", labels=labels)
    entitlement = GaugeMetricFamily(
        "tranche_queue_entitlement_ratio",
        "Share to which the GpuQueue is entitled by its weight: 0 to 1.",
        labels=labels,
    )
    running = GaugeMetricFamily("tranche_queue_running_pods", "Pods of the GpuQueue with a node.", labels=labels)
    waiting = GaugeMetricFamily("tranche_queue_waiting_pods", "Pods of the GpuQueue without a node.", labels=labels)
    standings = Standings(state.fair_share, state.queue.waiting)
    for queue in state.fair_share.queues:
        name = queue.metadata.name
        standing = standings.of(QueueKey(name=name))
        share.add_metric((name,), float(standing.share))
        entitlement.add_metric((name,), standing.entitlement)
        running.add_metric((name,), standing.use.pods)
        waiting.add_metric((name,), standing.waiting)
    yield from (share, entitlement, running, waiting)


def _missing_queues(state: ClusterState) -> Metric:
    """Return how many namespaces name each GpuQueue that does not exist; the most used names only."""
    missing = GaugeMetricFamily(
        "tranche_missing_queue_namespaces",
        "Namespaces whose label names this GpuQueue, which does not exist.",
        labels=("queue",),
    )
    named = state.fair_share.queues.named
    for queue in state.fair_share.queues:
        del named[queue.metadata.name]
    for name, count in named.most_common(_MOST_MISSING):
        missing.add_metric((name,), count)
    return missing


def _quotas(state: ClusterState) -> Iterator[Metric]:
    """Yield the metrics of GpuQuotas, which only administrators create: their namespaces are few."""
    available = GaugeMetricFamily(
        "tranche_quota_available_ratio",
        "Part of a limit of the GpuQuota that is left: at most 1; negative if more than the limit is used.",
        labels=("namespace", "quota", "resource"),
    )
    alert = GaugeMetricFamily(
        "tranche_quota_alert_ratio",
        "Part of each limit of the GpuQuota below which it is nearly full.",
        labels=("namespace", "quota"),
    )
    for gpu_quota in state.quotas.gpu_quotas():
        name, total = (gpu_quota.metadata.namespace, gpu_quota.metadata.name), gpu_quota.spec.total
        for each in quota_use.of_total(total, state.quotas.use(gpu_quota.metadata.namespace), state.settings):
            available.add_metric((*name, each.resource), each.available_ratio)
        alert.add_metric(name, (100 - total.alert_threshold_percent) / 100)
    yield from (available, alert)


def _resource_quotas(state: ClusterState) -> Iterator[Metric]:
    """Yield HAMi's metrics of the ResourceQuotas that limit GPU resources: of each resource the smallest limit."""
    used = GaugeMetricFamily(
        "hami_resource_quota_used",
        "What the pods of a namespace hold of a resource that its ResourceQuotas limit, in units of the resource.",
        labels=("zone", "namespace", "quota_name", "limit"),
    )
    limited = GaugeMetricFamily(
        "hami_resource_quota_limit",
        "The smallest limit of the resource in the ResourceQuotas of the namespace.",
        labels=("zone", "namespace", "quota_name"),
    )
    for namespace in state.quotas.resource_quotas:
        limits = quota.limits(state.quotas.hards(namespace), state.settings).limits
        for each in quota_use.of_limits(limits, state.quotas.use(namespace).at_limits()):
            used.add_metric((ZONE, namespace, each.resource, str(each.limit)), each.used)
            limited.add_metric((ZONE, namespace, each.resource), each.limit)
    yield from (used, limited)


def _allocated_time(state: ClusterState) -> Metric:
    """Return for how long pods have held cards; namespaces beyond a bound are counted together, without a name."""
    seconds = CounterMetricFamily(
        "tranche_allocated_card_seconds",
        "Cards that the pods of a namespace have held, in parts of cards, times the seconds, since this replica leads.",
        labels=("namespace", "queue"),
    )
    for owner, card_seconds in state.allocated_time:
        seconds.add_metric((owner.namespace, owner.queue), card_seconds)
    return seconds


def _bindings(state: ClusterState) -> Iterator[Metric]:
    bindings = GaugeMetricFamily("tranche_scheduler_gpu_bindings", "GPUBindings.")
    bindings.add_metric((), len(state.bindings))
    by_problem = GaugeMetricFamily(
        "tranche_scheduler_gpu_binding_problems",
        "GPUBindings that give no pod their card, or trust every namespace: one binding may have several problems.",
        labels=("problem",),
    )
    counts = Counter(
        problem
        for each in state.bindings
        for problem in problems.of_binding(each.spec, is_known=state.ledger.position(each.spec.card) is not None)
    )
    for problem in get_args(BindingProblem):
        by_problem.add_metric((problem,), counts[problem])
    yield from (bindings, by_problem)


def _nodes(state: ClusterState) -> Iterator[Metric]:
    nodes = GaugeMetricFamily("tranche_scheduler_nodes", "Nodes with cards.")
    nodes.add_metric((), len(state.ledger.nodes))
    unreported = GaugeMetricFamily(
        "tranche_scheduler_unreported_nodes", "Nodes with the label of agents whose cards nothing reports."
    )
    unreported.add_metric((), sum(state.ledger.row(node) is None for node in state.node_problems.labelled))
    closed_nodes = GaugeMetricFamily(
        "tranche_scheduler_closed_nodes", "Nodes that take no GPU pods, by the code of the reason.", labels=("reason",)
    )
    counts = Counter(each.code for each in state.closed_nodes.now().values())
    for reason in sorted({*CLOSING, *counts}):
        closed_nodes.add_metric((reason,), counts[reason])
    requests = GaugeMetricFamily(
        "tranche_scheduler_mig_requests", "MIG instances requested from agents, or kept for a pod."
    )
    requests.add_metric((), len(state.instance_requests))
    yield from (nodes, unreported, closed_nodes, requests)


def _dra(state: ClusterState) -> Iterator[Metric]:
    classes = GaugeMetricFamily(
        "tranche_dra_device_classes",
        "DeviceClasses that satisfy a resource of ours as an extended resource.",
        labels=("resource",),
    )
    satisfied = Counter(resource for _, resource in state.device_classes)
    for resource in state.settings.resources.managed():
        classes.add_metric((resource,), satisfied[resource])
    allocations = GaugeMetricFamily(
        "tranche_dra_foreign_allocations",
        "Devices of other DRA drivers that claims have on nodes with cards: counted, double_booked (pods have the card,"
        " too), unknown (not a whole card of the node's report).",
        labels=("state",),
    )
    counts = state.foreign_devices.counts()
    for each in STATES:
        allocations.add_metric((each,), counts[each])
    yield from (classes, allocations)


def _handed_over(state: ClusterState, lease: KubeSchedulerLease | None) -> Iterator[Metric]:
    pods = GaugeMetricFamily(
        "tranche_scheduler_handed_over_pods", "Pods without a node that are handed over to kube-scheduler."
    )
    pods.add_metric((), len(state.handed_over))
    yield pods
    if lease is not None:
        runs = GaugeMetricFamily(
            "tranche_kube_scheduler_up", "1 while a kube-scheduler places the pods that are handed over, else 0."
        )
        runs.add_metric((), float(not lease.is_silent))
        yield runs


def _locks(locks: Locks) -> Iterator[Metric]:
    ages = locks.ages
    held = GaugeMetricFamily("tranche_scheduler_node_locks", "Locked nodes that HAMi's device plugin serves.")
    held.add_metric((), len(ages))
    oldest = GaugeMetricFamily(
        "tranche_scheduler_node_lock_age_seconds",
        "Age of the oldest lock since it was first seen; 0 without locks.",
    )
    oldest.add_metric((), max(ages, default=0.0))
    queued = GaugeMetricFamily("tranche_scheduler_node_lock_queue", "Pods that wait for the lock of their node.")
    queued.add_metric((), locks.queued)
    yield from (held, oldest, queued)
