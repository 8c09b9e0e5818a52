"""Events about uncounted pods: which node takes no GPU pods, because of which pod, and the remedy."""

from collections.abc import Callable

from cluster.events import Recorder
from cluster.metadata import Reference
from scheduler.objects import Pod


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
