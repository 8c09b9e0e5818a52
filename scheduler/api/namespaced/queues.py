"""The queues that the pods of one namespace may use, without the numbers and pods of queues that only others use."""

from collections.abc import Iterable

import msgspec

from allocation.fairness.queue_spec import QueueKey
from allocation.steps import Steps
from scheduler.api import queue_view
from scheduler.api.queue_types import QueuesView, QueueView
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState


def view(state: ClusterState, pods: Iterable[Pod], namespace: str) -> Steps[QueuesView]:
    """Return the queues of those `pods` that are in `namespace`, and the others that its pods may use.

    A pod that names a queue of another team shows its user nothing of that queue.
    """
    fair_share, labels = state.fair_share, state.node_cache.namespaces.get(namespace, {})
    charged, named = set[str](), {str(QueueKey.of_labels({}, namespace=namespace, namespace_labels=labels))}
    for pod in [each for each in pods if each.metadata.namespace == namespace]:
        key = fair_share.use.owner(pod.uid)
        if key is not None:
            charged.add(str(key))
        else:
            named.add(str(fair_share.key(pod)))
        yield
    usable = {each.metadata.name for each in fair_share.queues if each.spec.accepts(labels)}
    refusing = {each.metadata.name for each in fair_share.queues} - usable
    own = charged | (named - refusing)
    found = queue_view.view(state)
    queues = (
        _own(each, namespace) if each.name in own else _of_others(each)
        for each in found.queues
        if each.name in own or each.name in usable
    )
    return msgspec.structs.replace(found, queues=tuple(queues))


def _own(queue: QueueView, namespace: str) -> QueueView:
    own = tuple(pod for pod in queue.next if pod.startswith(f"{namespace}/"))
    return msgspec.structs.replace(queue, next=own)


def _of_others(queue: QueueView) -> QueueView:
    return msgspec.structs.replace(
        queue,
        redacted=True,
        allocated={},
        share=0.0,
        dominant_resource="",
        weighted_share=0.0,
        entitlement=0.0,
        overused=False,
        underused=False,
        excess_cards=0.0,
        running=0,
        waiting=0,
        next=(),
    )
