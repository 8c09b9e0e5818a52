"""Explains which queue a pod belongs to, which pods come before it, and what to do if its queue takes no pods."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal

from allocation import names
from allocation.fairness.queue_spec import QueueKey
from allocation.reasons import PodReason
from scheduler.api.queue_types import PodQueue, QueueAhead
from scheduler.api.queue_view import finite
from scheduler.fairness.queue_status import dominant_resource
from scheduler.fairness.standings import Standings
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod
from scheduler.queue.entry import Entry
from scheduler.queue.queue_order import WaitingDemand
from scheduler.state.cluster_state import ClusterState

QUEUE_REASONS: Final = frozenset(
    {PodReason.QueueUnknown, PodReason.QueueForbidden, PodReason.QueueSuspended, PodReason.PodQuotaNotFit}
)
"""Why a queue takes no pod now, whatever the nodes are."""
_NAMED: Final = 5


def queue(state: ClusterState, pod: Pod) -> PodQueue | None:
    """Return the queue of a pod, which need not exist yet; None while the cluster has no GpuQueue."""
    fair_share = state.fair_share
    if not fair_share.queues:
        return None
    key = fair_share.use.owner(pod.uid) or fair_share.key(pod)
    standings, order = Standings(fair_share, state.queue.waiting), _competing(state)
    standing = standings.of(key)
    position = next((index for index, entry in enumerate(order) if entry.pod.uid == pod.uid), None)
    before = order[:position] if position is not None else []
    is_placed = bool(state.node_cache.node_of(pod.uid))
    return PodQueue(
        name=str(key),
        weight=standing.spec.weight,
        priority=standing.spec.priority,
        share=finite(float(standing.share)),
        dominant_resource=dominant_resource(standing, state.settings),
        entitlement=standing.entitlement,
        rank=len(before) + 1 if position is not None else 0,
        waiting=len(order),
        ahead=_ahead(state, standings, order[position], before) if position is not None else None,
        waits_for="" if is_placed else waits_for(state, key, state.queue.demands),
        is_behind_first=fair_share.is_strict(key) and any(each.key == key for each in before),
    )


def waits_for(state: ClusterState, key: QueueKey, demands: Mapping[QueueKey, WaitingDemand]) -> str:
    """Return the GpuQueue of a higher tier for which a queue waits; empty if for none.

    `demands` are what the pods of all queues require that wait for cards or nodes to become free.
    """
    blocker = state.fair_share.blocker(key, demands)
    return str(blocker) if blocker is not None else ""


def _competing(state: ClusterState) -> list[Entry]:
    """Return the waiting pods whose queues take pods now, in the order in which a free card is offered to them."""
    takes: dict[tuple[QueueKey, str], bool] = {}
    order = []
    for entry in state.queue.in_order():
        of_namespace = entry.key, entry.pod.metadata.namespace
        if of_namespace not in takes:
            takes[of_namespace] = _takes(state, *of_namespace)
        if takes[of_namespace] and entry.place != "held":
            order.append(entry)
    return order


def _takes(state: ClusterState, key: QueueKey, namespace: str) -> bool:
    try:
        state.fair_share.queues.check(key, namespace)
        state.fair_share.check_instances(key)
    except WaitingPodError:
        return False
    return True


def _ahead(state: ClusterState, standings: Standings, entry: Entry, before: Sequence[Entry]) -> QueueAhead | None:
    """Return the other queue that has the last of the pods `before` a waiting one."""
    last = next((each for each in reversed(before) if each.key != entry.key), None)
    if last is None:
        return None
    standing = standings.of(last.key)
    (its_tier, its_share), (tier, own_share) = state.fair_share.rank(last.key), state.fair_share.rank(entry.key)
    by: Literal["tier", "priority", "share", "age"] = "age"
    if its_tier != tier:
        by = "tier"
    elif last.pod.spec.priority != entry.pod.spec.priority:
        by = "priority"
    elif its_share != own_share:
        by = "share"
    return QueueAhead(
        name=str(last.key),
        by=by,
        weight=standing.spec.weight,
        priority=standing.spec.priority,
        share=finite(float(standing.share)),
        dominant_resource=dominant_resource(standing, state.settings),
    )


def hints(state: ClusterState, pod: Pod, reasons: Collection[str]) -> tuple[str, ...]:
    """Return what to do for a pod whose queue takes no pod; empty if the pod does not wait for that."""
    name = state.fair_share.key(pod).name
    if PodReason.QueueUnknown in reasons or PodReason.QueueForbidden in reasons:
        return (f"{_label(pod)}; {_usable(state, pod.metadata.namespace)}",)
    if PodReason.QueueSuspended in reasons:
        patch = """'{"spec":{"suspended":false}}'"""
        return (f"an administrator resumes the queue by: kubectl patch gpuqueue {name} --type=merge -p {patch}",)
    if PodReason.PodQuotaNotFit in reasons:
        key = state.fair_share.key(pod)
        left = state.fair_share.pods_left(key)
        of_queue = left is not None and left <= 0
        whose = f"GpuQueue {name}" if of_queue else f"namespace {pod.metadata.namespace}"
        limit = "maxInstances" if of_queue else "spec.total.maxPods of the GpuQuota"
        return (f"the pod is scheduled when another pod of {whose} ends, or an administrator raises {limit}",)
    return ()


def _label(pod: Pod) -> str:
    owner = "the pod" if pod.metadata.labels.get(names.QUEUE) else f"namespace {pod.metadata.namespace}"
    return f"label {names.QUEUE} of {owner} names the queue"


def _usable(state: ClusterState, namespace: str) -> str:
    """Return the GpuQueues that a namespace may use, in words."""
    labels = state.node_cache.namespaces.get(namespace, {})
    usable = sorted(each.metadata.name for each in state.fair_share.queues if each.spec.accepts(labels))
    if not usable:
        return f"no GpuQueue is for namespace {namespace}: without the label the namespace is a queue of its own"
    more = [f"{len(usable) - _NAMED} more"] if len(usable) > _NAMED else []
    return f"GpuQueues for namespace {namespace}: {', '.join([*usable[:_NAMED], *more])}"
