"""Says of a running pod whether it gets another size, and what that waits for (docs/resize.md)."""

from allocation.errors import AllocationError
from allocation.names import RESIZE
from allocation.wire import resize_record
from scheduler.objects import Pod
from scheduler.resize import messages
from scheduler.resize.evaluation import evaluate
from scheduler.state.cluster_state import ClusterState


def resize(state: ClusterState, pod: Pod) -> str:
    """Return how far a resize is, and what becomes of the size that a pod's user wishes; empty without either.

    The size is checked, and nothing is charged.
    """
    annotations = pod.metadata.annotations
    wish = annotations.get(RESIZE)
    why = ""
    if wish is not None and state.ledger.reservation(pod.uid) is not None:  # it is missing for moments of decisions
        try:
            if evaluate(state, pod, annotations, resize_record.decode_wish(wish), dry_run=True) is not None:
                why = "the size that its annotation wishes fits, and is not written yet"
        except AllocationError as error:
            why = f"the size that its annotation wishes is refused: {messages.refused(error)}"
    return "; ".join(each for each in (_in_progress(pod), why) if each)


def _in_progress(pod: Pod) -> str:
    try:
        resized = resize_record.resized_of(pod.metadata.annotations)
    except AllocationError as error:
        return str(error)
    if resized is None:
        return ""
    if resized.containers is None:
        return (
            "in progress: its kubelet has not seen the new size yet, and what it had before is charged, if it is more"
        )
    names = ", ".join(sorted(resized.containers))
    return f"in progress until these containers have started again: {names}; what they had before is charged until then"
