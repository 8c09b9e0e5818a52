"""The state of the scheduler, rebuilt from one read of the API server."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from cli.errors import MissingRightError
from cli.installation.rules import Rules
from cli.kube import own_kinds
from cli.kube.client import Client
from cli.kube.objects import LIVE, NOT_FAILED, UNFINISHED
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import note
from cluster import resource
from cluster.disruption_budget import PodDisruptionBudget
from cluster.lease import Lease
from scheduler.objects import Pod, PriorityClass
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import NO_PREFERENCES, ScoreWeights
from scheduler.state import kinds
from scheduler.state.agent_leases import GRACE_SECONDS
from scheduler.state.cluster_state import ClusterState
from scheduler.state.kinds import StateKind


class _Clock:
    """A clock that is set to the moments at which a running scheduler would have seen each object."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def empty(rules: Rules, clock: Callable[[], float]) -> ClusterState:
    """Return the state of a scheduler that has seen no object yet."""
    return ClusterState(
        settings=rules.allocation,
        make_queue=partial(SchedulingQueue, clock=clock, first_backoff=1.0, longest_backoff=1.0),
        clock=clock,
        names=rules.names,
        has_queue=not rules.extender,
        scores_resources=_weights(rules).node_resources > 0,
        stranded=rules.weights.stranded,
        network_levels=rules.network_levels,
        foreign_drivers=rules.dra.foreign_drivers,
        reads_pod_groups=rules.gangs.pod_groups,
    )


def read(session: Session, rules: Rules) -> ClusterState:
    """Read the cluster and return the state that a long-running scheduler has.

    Pods without a node are read only if there are GpuQueues, which determine their order.

    Raises:
        CommandError: an object may not be read, or Tranche is not installed.
    """
    client, clock = session.client, _Clock()
    state = empty(rules, clock)
    now = time.time() + client.clock_ahead
    long_ago = now - GRACE_SECONDS - 1  # so that the grace period of a node without a Lease is over
    for kind in kinds.needed(
        has_storage=state.has_queue,
        has_bindings=state.bindings.is_on,
        has_foreign_drivers=bool(rules.dra.foreign_drivers),
        has_pod_groups=state.pod_groups.are_read,
        with_images=_weights(rules).image_locality > 0,
    ):
        if kind in (kinds.PRIORITY_CLASSES, kinds.DEVICE_CLASSES):
            continue  # they matter for planned pods only, and to kube-scheduler
        set_item, _ = kind.handlers(state)
        clock.now = now if kind is kinds.PODS else long_ago
        for item in _objects(client, kind, state):
            if isinstance(item, Lease):
                # A single read has to compare clocks: the agents', which wrote the times, with the API server's.
                clock.now = min(item.spec.renewed_at, now)
            set_item(item, None)
    return state


def _objects(client: Client, kind: StateKind[Any], state: ClusterState) -> list[Any]:
    """Return the objects of a kind; pods come last, and GpuQueues determine the order of those without a node."""
    match kind.resource:
        case resource.GPU_NODE_STATUSES:
            return list(gpu_node_statuses(client))
        case resource.GPU_CLAIMS:
            return list(own_kinds.gpu_claims(client))
        case resource.GPU_QUOTAS | resource.GPU_QUEUES:
            return own_kinds.read_if_possible(client, kind.resource, kind.decoded)
        case resource.POD_GROUPS | resource.KUBERNETES_POD_GROUPS:
            return own_kinds.pod_groups(client, kind.resource, kind.decoded)
        case resource.RESOURCE_SLICES | resource.RESOURCE_CLAIMS:
            without = "cards that other DRA drivers have allocated are shown as free"
            return own_kinds.read_if_defined(client, kind.resource, kind.decoded, without=without)
        case resource.PODS:
            selector = UNFINISHED if state.fair_share.queues else LIVE
            return client.list(kind.resource, kind.decoded, field_selector=selector)
        case _:
            return client.list(kind.resource, kind.decoded, namespace=kind.namespace)


def read_pods(session: Session, namespace: str) -> list[Pod]:
    """Return the pods of a namespace that count for their gangs."""
    return session.client.list(resource.PODS, Pod, namespace=namespace, field_selector=NOT_FAILED)


def read_priority_classes(session: Session, state: ClusterState) -> None:
    """Read what gives planned pods their priority; pods that exist have theirs.

    Raises:
        MissingRightError: they may not be read.
    """
    for priority_class in session.client.list(resource.PRIORITY_CLASSES, PriorityClass):
        state.priority_classes.set(priority_class)


def read_budgets(session: Session) -> DisruptionBudgets:
    """Return the PodDisruptionBudgets; if they may not be read, note that preemption is shown without them."""
    budgets = DisruptionBudgets()
    try:
        for budget in session.client.list(resource.POD_DISRUPTION_BUDGETS, PodDisruptionBudget):
            budgets.set(budget)
    except MissingRightError as error:
        note(f"{error.cause}: what preemption would do is shown as if there were no PodDisruptionBudgets")
    return budgets


def _weights(rules: Rules) -> ScoreWeights:
    """Return the weights that count; in extender mode kube-scheduler has its own."""
    return NO_PREFERENCES if rules.extender else rules.weights
