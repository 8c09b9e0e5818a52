"""The queues of a cluster, counted as the scheduler counts them."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from allocation import ineffective, names
from allocation.fairness.queue_spec import QueueKey
from cli.explain import scheduler_state
from cli.installation.rules import Rules
from cli.kube import own_kinds
from cli.kube.objects import UNFINISHED
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.queues import tables
from cli.tables import listed
from cluster.gpu_queue import GpuQueue
from cluster.resource import GPU_QUEUES, NAMESPACES, NODES, PODS
from scheduler.api import queue_view
from scheduler.api.queue_types import QueuesView
from scheduler.objects import Namespace, Node, Pod
from scheduler.state.cluster_state import ClusterState

_SHOWN: Final = 3


def read(session: Session, rules: Rules) -> ClusterState:
    """Return the state of a scheduler that has seen what queues are counted by, and nothing else.

    Raises:
        CommandError: an object may not be read, or its resource is not defined.
    """
    client, state = session.client, scheduler_state.empty(rules, time.monotonic)
    for status in gpu_node_statuses(client):
        state.agent_reports.set(status)
    for queue in own_kinds.read(client, GPU_QUEUES, GpuQueue):
        state.limits.set_queue(queue)
    for namespace in client.list(NAMESPACES, Namespace):
        state.limits.set_namespace(namespace)
    for node in client.list(NODES, Node):
        state.set_node(node)
    for pod in client.list(PODS, Pod, field_selector=UNFINISHED):
        state.set_pod(pod)
    return state


def view(state: ClusterState, *, name: str = "", namespace: str = "") -> QueuesView:
    """Return the queue of that name, the queues that the pods of a namespace may use, or all of them."""
    all_queues = queue_view.view(state)
    if name:
        chosen = {name}
    elif namespace:
        labels = state.node_cache.namespaces.get(namespace, {})
        usable = (each.metadata.name for each in state.fair_share.queues if each.spec.accepts(labels))
        chosen = {str(state.fair_share.queues.key({}, namespace)), f"namespace/{namespace}", *usable}
    else:
        return all_queues
    return msgspec.structs.replace(all_queues, queues=tuple(each for each in all_queues.queues if each.name in chosen))


def notes(view: QueuesView, state: ClusterState) -> Iterator[str]:
    """Yield what determines the order, which queues take no pods, and which namespaces name such a queue."""
    if view.fair_sharing and not state.has_queue:
        yield "kube-scheduler has the queue (extender mode): limits hold, but its order does not depend on shares"
    yield from tables.notes(view)
    for queue in state.fair_share.queues:
        for text in ineffective.of_queue(queue.spec, state.settings):
            yield f"GpuQueue {queue.metadata.name}: {text}"
    for problem, namespaces in _wrong_labels(state).items():
        yield f"label {names.QUEUE} of namespace {listed(namespaces, shown=_SHOWN)} names {problem}"


def _wrong_labels(state: ClusterState) -> Mapping[str, list[str]]:
    """Return the namespaces whose label names a queue that takes none of their pods, by what is wrong."""
    queues, wrong = state.fair_share.queues, defaultdict[str, list[str]](list)
    for namespace, labels in sorted(state.node_cache.namespaces.items()):
        name = labels.get(names.QUEUE)
        if not name:
            continue
        queue = queues.get(QueueKey(name=name))
        if queue is None:
            wrong[f"GpuQueue {name}, which does not exist"].append(namespace)
        elif not queue.spec.accepts(labels):
            wrong[f"GpuQueue {name}, whose namespaceSelector does not match it"].append(namespace)
    return wrong
