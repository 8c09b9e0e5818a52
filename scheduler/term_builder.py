"""Builds a term from its parts, in the order of their dependencies."""

import time
from collections.abc import Callable
from functools import partial

from allocation.settings import AllocationSettings
from cluster.api import Api
from cluster.events import Recorder
from scheduler import optional_parts
from scheduler.binding.binder import Binder
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.bound_cards_check import BoundCardsCheck
from scheduler.binding.failure_handler import FailureHandler
from scheduler.binding.lease_keeper import LeaseKeeper
from scheduler.binding.lease_reconciler import LeaseReconciler
from scheduler.binding.lease_writes import LeaseWrites
from scheduler.binding.node_locks import NodeLocks
from scheduler.binding.plugin_binder import PluginBinder
from scheduler.claims.writer import StatusWriter
from scheduler.consolidation.consolidator import Consolidator
from scheduler.consolidation.movable import Movable
from scheduler.consolidation.planner import Planner
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.dra import reports
from scheduler.dra.allocator_reconciler import AllocatorReconciler
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.fairness.queue_reporter import QueueReporter
from scheduler.fenced_api import FencedApi
from scheduler.gang_scheduling.gang_keeper import GangKeeper
from scheduler.gang_scheduling.gang_scheduler import GangScheduler
from scheduler.informers import Informers
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.loop import Loop
from scheduler.measurements.agent_pods import AgentPods
from scheduler.measurements.reader import MeasurementReader
from scheduler.metrics.instruments import Metrics
from scheduler.mig.writer import RequestWriter
from scheduler.missing_devices.reconciler import MissingDeviceReconciler
from scheduler.patience.patience import Patience
from scheduler.preemption import waiting_pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.gang_choice import GangChooser
from scheduler.preemption.preemptor import Preemptor
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.resize.resizer import Resizer
from scheduler.settings import NO_PREFERENCES, SchedulerSettings
from scheduler.side_by_side import LoopAndExtender
from scheduler.state import kinds, uncounted_pods
from scheduler.state.cluster_state import ClusterState
from scheduler.state.ledger_comparer import LedgerComparer
from scheduler.state.quota_reporter import QuotaReporter
from scheduler.status_writer import PacedStatusWriter
from scheduler.term import LeaderTerm, Scheduling


def build_term(
    *,
    api: Api,
    token: str,
    settings: SchedulerSettings,
    allocation: AllocationSettings,
    recorder: Recorder,
    metrics: Metrics,
    is_trusted: Callable[[], bool],
    kube_scheduler: KubeSchedulerLease | None = None,
) -> LeaderTerm:
    """Return a term that has read nothing yet; it binds with the leader's `token` as long as `is_trusted`.

    `kube_scheduler` is the Lease of the kube-scheduler that it works with; None without one, or without an election.
    """
    metrics.terms.inc()
    fenced = FencedApi(api, token=token, timeout_seconds=settings.request_timeout_seconds, is_trusted=is_trusted)
    clock, names = time.monotonic, frozenset(settings.scheduler_names)
    weights = NO_PREFERENCES if settings.extender else settings.weights
    watched = Informers(
        api,
        kinds.needed(
            has_storage=not settings.extender,
            has_bindings=allocation.bindings.mode != "off",
            has_foreign_drivers=bool(settings.dra.foreign_drivers),
            has_pod_groups=settings.gangs.pod_groups,
            with_images=weights.image_locality > 0,
        ),
        preempts=settings.preemption.enabled,
        relist_seconds=settings.relist_seconds,
    )

    # The state.
    cycle: SchedulingCycle
    state: ClusterState
    rejected = RejectedPods(watched.pods, clock=clock)
    state = ClusterState(
        settings=allocation,
        make_queue=partial(
            SchedulingQueue,
            clock=clock,
            first_backoff=settings.first_backoff_seconds,
            longest_backoff=settings.longest_backoff_seconds,
            may_fit=lambda kind: cycle.may_fit(kind),  # noqa: PLW0108 -- the cycle is built below
            on_event=rejected.note_change,
        ),
        clock=clock,
        names=names,
        has_queue=not settings.extender,
        mig_request_timeout_seconds=settings.mig_request_timeout_seconds,
        on_uncounted=uncounted_pods.reporter(recorder),
        foreign_drivers=settings.dra.foreign_drivers,
        on_device_class=reports.class_reporter(recorder, is_extender=settings.extender),
        on_double_booked=reports.double_booking_reporter(recorder, running=lambda: state.running),
        scores_resources=weights.node_resources > 0,
        stranded=settings.weights.stranded,
        network_levels=settings.network_levels,
        reads_pod_groups=settings.gangs.pod_groups,
    )
    queue = state.queue
    watched.feed_state(state)
    locks = NodeLocks(
        fenced,
        clock=clock,
        is_served=state.plugin_nodes.is_hami,
        is_ours=lambda pod: pod.spec.scheduler_name in names,
        find_pod=lambda namespace, name: watched.pods.get(name, namespace),
    )
    watched.feed_locks(locks)

    # Scheduling and binding.
    cycle = SchedulingCycle(state, weights=weights)
    failures = FailureHandler(fenced, queue=queue, cycle=cycle, recorder=recorder, metrics=metrics)
    binder = Binder(
        fenced,
        delivery_of=state.deliveries.of,
        on_error=lambda kind: metrics.bind_errors.labels(kind).inc(),
    )
    plugin_binder = PluginBinder(
        binder,
        locks=locks,
        nodes=state.plugin_nodes,
        metrics=metrics,
        on_reopened=lambda: queue.notify(ClusterEvent.NODE_OPENED),
    )
    volume_binder = optional_parts.volume_binder(
        fenced, watched=watched, state=state, metrics=metrics, settings=settings
    )
    lease_writes = LeaseWrites(fenced, leases=state.device_leases)
    lease_keeper = LeaseKeeper(
        lease_writes,
        leases=state.device_leases,
        inventory_of=state.ledger.inventory,
        on_found=watched.leases.add_if_new,
    )
    binding_cycle = BindingCycle(
        binder=plugin_binder,
        leases=lease_keeper,
        bound_cards=BoundCardsCheck(api, allocation.bindings) if allocation.bindings.mode != "off" else None,
        volumes=volume_binder,
        claims=state.claims,
        failures=failures,
        recorder=recorder,
        metrics=metrics,
    )
    budgets = DisruptionBudgets()
    watched.feed_budgets(budgets)
    chooser = Chooser(state, Eligibility(state, budgets=budgets, settings=settings.preemption, unix=time.time))
    for_kube_scheduler = optional_parts.kube_scheduler_parts(
        api,
        fenced,
        watched=watched,
        cycle=cycle,
        binding_cycle=binding_cycle,
        chooser=chooser,
        rejected=rejected,
        recorder=recorder,
        metrics=metrics,
        settings=settings,
        lease=kube_scheduler,
        is_trusted=is_trusted,
    )
    extender = for_kube_scheduler.extender if for_kube_scheduler is not None else None
    scheduling: Scheduling
    if extender is not None and settings.extender:
        scheduling = extender
    else:
        loop = Loop(
            queue=queue,
            cycle=cycle,
            binding_cycle=binding_cycle,
            gangs=GangScheduler(
                cycle,
                binding_cycle=binding_cycle,
                failures=failures,
                recorder=recorder,
                metrics=metrics,
                settings=settings.gangs,
                concurrent_binds=settings.concurrent_binds,
                is_trusted=is_trusted,
            ),
            failures=failures,
            metrics=metrics,
            concurrent_binds=settings.concurrent_binds,
            is_trusted=is_trusted,
        )
        scheduling = LoopAndExtender(loop, extender) if extender is not None else loop

    # Preemption and consolidation.
    evictor = Evictor(fenced, recorder=recorder)
    preemptor = Preemptor(
        chooser,
        evictor,
        gang_chooser=GangChooser(chooser, cycle) if not settings.extender else None,
        waiting=optional_parts.waiting_pods(state, rejected),
        still_waits=optional_parts.still_waits(state, rejected),
        metrics=metrics,
        settings=settings.preemption,
        clock=clock,
        is_trusted=is_trusted,
    )

    consolidator = Consolidator(
        Planner(
            state,
            Movable(
                state,
                budgets=budgets,
                settings=settings.consolidation,
                preemption=settings.preemption,
                unix=time.time,
            ),
        ),
        evictor,
        waiting=waiting_pod.of_queue(state),
        recorder=recorder,
        metrics=metrics,
        settings=settings.consolidation,
        nomination_seconds=settings.preemption.nomination_seconds,
        clock=clock,
        is_trusted=is_trusted,
    )

    # Background tasks.
    writer = RequestWriter(
        fenced,
        requests=state.instance_requests,
        on_cooled_down=lambda: queue.notify(ClusterEvent.CARDS_CHANGED),
    )
    statuses = StatusWriter(fenced, state.claims)
    queues = QueueReporter(state.fair_share, lambda: queue.waiting, settings=allocation, recorder=recorder)
    queue_statuses = PacedStatusWriter(fenced, queues, turn=state.turn)
    quota_statuses = PacedStatusWriter(
        fenced, QuotaReporter(state.quotas, settings=allocation, recorder=recorder), turn=state.turn
    )
    reconciler = LeaseReconciler(
        fenced,
        lease_writes,
        leases=state.device_leases,
        heartbeats=state.agent_leases,
        has_node=lambda name: watched.nodes.get(name) is not None,
        inventory_of=state.ledger.inventory,
    )
    allocators = AllocatorReconciler(fenced, state.node_allocators)
    missing_devices = MissingDeviceReconciler(
        fenced,
        state=state,
        statuses=watched.statuses,
        pods=watched.pods,
        recorder=recorder,
        settings=settings,
    )
    keeper = GangKeeper(
        state, evictor, recorder=recorder, metrics=metrics, settings=settings.gangs, is_trusted=is_trusted
    )
    patience = Patience(
        cycle,
        recorder=recorder,
        patience_seconds=settings.patience_seconds,
        idle_seconds=settings.hold_idle_seconds,
        is_trusted=is_trusted,
    )
    resizers = (Resizer(fenced, state=state, recorder=recorder, metrics=metrics),) if settings.resize else ()
    for resizer in resizers:
        watched.feed_resizer(resizer)
    reader = MeasurementReader(
        state.ledger,
        AgentPods(api, relist_seconds=settings.relist_seconds),
        settings=settings.measurements,
        clock=clock,
    )
    comparer = LedgerComparer(
        api,
        state=state,
        pods=watched.pods,
        being_bound=lambda: scheduling.being_bound,
        metrics=metrics,
        seconds=settings.recount_seconds,
    )
    return LeaderTerm(
        informers=watched,
        cycle=cycle,
        locks=locks,
        volumes=volume_binder,
        scheduling=scheduling,
        extender=extender,
        kube_scheduler=kube_scheduler,
        preemptor=preemptor,
        consolidator=consolidator if settings.moves_pods else None,
        comparer=comparer,
        use=reader.use,
        assignments=optional_parts.assignments(watched, settings.assignments),
        expander=optional_parts.expander(
            fenced,
            watched=watched,
            state=state,
            rejected=rejected,
            recorder=recorder,
            metrics=metrics,
            settings=settings,
        ),
        chores=(
            *(failures.run, locks.run, writer.run, statuses.run, queue_statuses.run, quota_statuses.run),
            *(reconciler.run, allocators.run, missing_devices.run, patience.run, keeper.run, reader.run),
            *(each.run for each in resizers),
            *(each.run for each in (for_kube_scheduler.reporters if for_kube_scheduler is not None else ())),
        ),
    )
