"""What the table of `kubectl gpu queues` does not show."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from allocation import ineffective, names
from allocation.fairness.queue_spec import QueueKey
from cli.queues import problems
from cli.tables import listed
from scheduler.api.queue_types import QueuesView
from scheduler.state.cluster_state import ClusterState

_SHOWN: Final = 3


def of_queues(view: QueuesView, state: ClusterState) -> Iterator[str]:
    """Yield what determines the order, which queues take no pods, and which namespaces name such a queue."""
    if view.fair_sharing and not state.has_queue:
        yield "kube-scheduler has the queue (extender mode): limits hold, but its order does not depend on shares"
    yield from problems.of_view(view)
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
