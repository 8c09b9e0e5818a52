"""Pods that run uncounted: their nodes take no GPU pods. Events name the node, the pod and the remedy."""

import logging
from collections import defaultdict
from collections.abc import Callable

from allocation.errors import AllocationError
from allocation.reasons import NodeReason, NodeRejection
from cluster.events import Recorder
from cluster.metadata import Reference
from scheduler.filters.node_rejections import NodeRejections
from scheduler.objects import Pod
from scheduler.state.running_allocation import uncounted_message

log = logging.getLogger(__name__)


class UncountedPods:
    """The pods whose allocation cannot be counted, by node.

    Attributes:
        rejections: the rejections by their nodes, each because of its first such pod.
    """

    def __init__(self, on_uncounted: Callable[[Pod, str], None]) -> None:
        """Call `on_uncounted` once for each pod and reason."""
        self._on_uncounted = on_uncounted
        self._by_node: defaultdict[str, dict[str, NodeRejection]] = defaultdict(dict)
        self.rejections = NodeRejections()

    def add(self, pod: Pod, error: AllocationError) -> None:
        """Close the node of a pod that cannot be counted because of `error`."""
        node, message = pod.spec.node_name, uncounted_message(pod, error)
        pods, closing = self._by_node[node], NodeRejection(NodeReason.UncountedPod, message, resolvable=False)
        if pods.get(pod.uid) == closing:
            return
        pods[pod.uid] = closing
        self._update(node)
        log.warning("node %s takes no GPU pods: pod %s: %s", node, pod, error)
        self._on_uncounted(pod, str(error))

    def remove(self, pod: Pod) -> None:
        """Note that a pod does not close its node any more, because it is counted or deleted."""
        node = pod.spec.node_name
        if self._by_node.get(node, {}).pop(pod.uid, None) is not None:
            self._update(node)

    def _update(self, node: str) -> None:
        pods = self._by_node[node]
        if not pods:
            del self._by_node[node]
        self.rejections.set(node, next(iter(pods.values()), None))


def reporter(recorder: Recorder) -> Callable[[Pod, str], None]:
    """Return the callback for each uncounted pod, with the reason why it cannot be counted."""

    def report(pod: Pod, why: str) -> None:
        node = pod.spec.node_name
        note = (
            f"node {node} takes no GPU pods, because pod {pod} runs there uncounted: {why};"
            " delete the pod, and create it again without spec.nodeName for the scheduler tranche"
        )
        for regarding in (pod.reference, Reference("Node", "", node, node)):
            recorder.record(regarding, type="Warning", reason="UncountedPod", action="Counting", note=note)

    return report
