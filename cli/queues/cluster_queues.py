"""The queues of a cluster, counted as the scheduler counts them."""

import time

import msgspec

from cli.explain import scheduler_state
from cli.installation.rules import Rules
from cli.kube import own_kinds
from cli.kube.objects import UNFINISHED
from cli.kube.reports import gpu_node_statuses
from cli.kube.session import Session
from cluster.gpu_queue import GpuQueue
from cluster.resource import GPU_QUEUES, NAMESPACES, NODES, PODS
from scheduler.api import queue_view
from scheduler.api.queue_types import QueuesView
from scheduler.objects import Namespace, Node, Pod
from scheduler.state.cluster_state import ClusterState


def read(session: Session, rules: Rules) -> ClusterState:
    """Return the state of a scheduler that has seen what queues are counted by, and nothing else.

    Raises:
        CommandError: an object may not be read, or its resource is not defined.
    """
    client, state = session.client, scheduler_state.empty(rules, time.monotonic)
    for status in gpu_node_statuses(client):
        state.set_status(status)
    for queue in own_kinds.read(client, GPU_QUEUES, GpuQueue):
        state.set_queue(queue)
    for namespace in client.list(NAMESPACES, Namespace):
        state.set_namespace(namespace)
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
