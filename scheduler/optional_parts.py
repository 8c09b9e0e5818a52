"""The parts of a term that its settings or its mode may leave out."""

import time
from collections.abc import Callable

import msgspec

from allocation.names import HAND_OVER_NAME
from cluster.api import Api
from cluster.events import Recorder
from scheduler.assignment_settings import AssignmentSettings
from scheduler.assignments import Assignments
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.volume_binder import VolumeBinder
from scheduler.binding.volume_steps import Shown
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.dra.handed_over_pods import HandedOverPods
from scheduler.dra.waiting_pods import WaitingPodReporter
from scheduler.expansion.expander import Expander
from scheduler.extender.gang_rehearsals import GangRehearsals
from scheduler.extender.gathering import Gathering
from scheduler.extender.offered_pods import OfferedPods
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.extender.retries import Retries
from scheduler.extender.verbs import Extender
from scheduler.fenced_api import FencedApi
from scheduler.gang_scheduling.gang_binding import GangBinding
from scheduler.informers import Informers
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.preemption import waiting_pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.waiting_pod import WaitingPods
from scheduler.settings import SchedulerSettings
from scheduler.state.cluster_state import ClusterState


def assignments(watched: Informers, settings: AssignmentSettings) -> Assignments | None:
    """Return the numbers of pods, which follow their changes, or None where none are assigned."""
    if settings.ports is None:
        return None
    made = Assignments(ports=settings.ports, most_per_namespace=settings.most_per_namespace)
    watched.pods.add_handlers(on_upsert=made.set_pod, on_delete=made.drop_pod)
    return made


def volume_binder(
    fenced: FencedApi, *, watched: Informers, state: ClusterState, metrics: Metrics, settings: SchedulerSettings
) -> VolumeBinder | None:
    """Return the binder of volumes, or None in extender mode, where kube-scheduler binds them."""
    if not watched.has_storage:
        return None
    shown = Shown(
        claim=watched.find_volume_claim,
        volume=watched.find_volume,
        node=watched.nodes.get,
        pod=watched.pods.get,
        migrated=lambda node: state.volumes.objects.csi_facts(node).migrated,
    )
    binder = VolumeBinder(fenced, shown=shown, metrics=metrics, timeout_seconds=settings.volume_bind_timeout_seconds)
    watched.feed_volume_binder(binder)
    return binder


def waiting_pods(state: ClusterState, rejected: RejectedPods) -> WaitingPods:
    """Return the pods that fit nowhere: those of the queue, and those that kube-scheduler has."""
    if not state.has_queue:
        return rejected.waiting
    if not state.settings.hands_over:
        return waiting_pod.of_queue(state)
    return waiting_pod.in_turns(waiting_pod.of_queue(state), rejected.waiting)


def still_waits(state: ClusterState, rejected: RejectedPods) -> Callable[[Pod], bool]:
    """Return whether a pod that fitted nowhere still waits for a node."""
    return state.may_wait if state.has_queue else rejected.waits


def expander(
    fenced: FencedApi,
    *,
    watched: Informers,
    state: ClusterState,
    rejected: RejectedPods,
    recorder: Recorder,
    metrics: Metrics,
    settings: SchedulerSettings,
) -> Expander | None:
    """Return what asks autoscalers for nodes, or None unless that is switched on."""
    if not settings.expander.enabled:
        return None
    made = Expander(
        fenced,
        state,
        waiting=waiting_pods(state, rejected),
        still_waits=still_waits(state, rejected),
        recorder=recorder,
        metrics=metrics,
        settings=settings.expander,
        unix=time.time,
    )
    watched.feed_expander(made)
    return made


class KubeSchedulerParts(msgspec.Struct, frozen=True):
    """What works for a kube-scheduler: the verbs that it calls, and what tells it and its users what it cannot know."""

    extender: Extender
    reporters: tuple[Retries | WaitingPodReporter | HandedOverPods, ...]


def kube_scheduler_parts(
    api: Api,
    fenced: FencedApi,
    *,
    watched: Informers,
    cycle: SchedulingCycle,
    binding_cycle: BindingCycle,
    chooser: Chooser,
    rejected: RejectedPods,
    recorder: Recorder,
    metrics: Metrics,
    settings: SchedulerSettings,
    lease: KubeSchedulerLease | None,
    is_trusted: Callable[[], bool],
) -> KubeSchedulerParts | None:
    """Return what works for a kube-scheduler, or None for a loop that hands no pods over."""
    state = cycle.state
    if state.has_queue and not state.settings.hands_over:
        return None
    names = frozenset((HAND_OVER_NAME,)) if state.has_queue else state.names
    offered = OfferedPods(
        api,
        pods=watched.pods,
        device_classes=state.device_classes,
        names=names,
        # Without the right to read the classes, any pod may have been allocated devices.
        reads_live=lambda: state.device_classes.has_any or watched.device_classes.unavailable == "forbidden",
    )
    gathering = Gathering(
        state,
        binding_cycle,
        GangBinding(binding_cycle, recorder=recorder, concurrent=settings.concurrent_binds, is_trusted=is_trusted),
        rehearsals=GangRehearsals(cycle, changes=lambda: rejected.changes, metrics=metrics),
        rejected=rejected,
        metrics=metrics,
        settings=settings.gangs,
    )
    extender = Extender(
        state=state,
        pods=offered,
        cycle=cycle,
        binding_cycle=binding_cycle,
        metrics=metrics,
        rejected=rejected,
        chooser=chooser,
        gathering=gathering,
        is_trusted=is_trusted,
    )
    retries = Retries(fenced, rejected=rejected, fits=extender.fits, renewed=extender.renewed)
    waiting = WaitingPodReporter(
        state.device_classes, pods=watched.pods, names=names, recorder=recorder, is_trusted=is_trusted
    )
    if lease is None or not state.has_queue:
        return KubeSchedulerParts(extender, (retries, waiting))
    handed_over = HandedOverPods(fenced, pods=state.handed_over, lease=lease, recorder=recorder)
    return KubeSchedulerParts(extender, (retries, waiting, handed_over))
