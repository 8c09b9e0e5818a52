"""Lines about the queue of a pod: what the queue has, the rank of the pod, and what comes first."""

from collections.abc import Iterator

from allocation.fairness.queue_spec import QueueKey
from scheduler.api.explanation_types import Explanation
from scheduler.api.queue_types import PodQueue, QueueAhead


def of_pod(explanation: Explanation) -> list[str]:
    """Return the queue that is charged, and for a waiting pod its rank; no line while the cluster has no GpuQueue."""
    queue = explanation.gpu_queue
    if queue is None:
        return []
    tier = f", tier {queue.priority}" if queue.priority else ""
    about = f"queue: {_named(queue.name)}, weight {queue.weight}{tier}, {_share(queue)}"
    order = "; ".join(_order(queue))
    return [f"{about}, entitled to {queue.entitlement:.2f}", *([f"order: {order}"] if order else [])]


def _named(name: str) -> str:
    """Return the name of a queue with its kind, as in `GpuQueue team-a` and `namespace team-b`."""
    key = QueueKey.of_annotation(name)
    return f"GpuQueue {key.name}" if key.name else f"namespace {key.namespace}"


def _share(queue: PodQueue | QueueAhead) -> str:
    """Return the share of a queue, such as `share 0.12 of nvidia.com/gpumem`."""
    if not queue.dominant_resource:
        return "share 0.00"
    share = "an infinite share" if queue.share is None else f"share {queue.share:.2f}"
    return f"{share} of {queue.dominant_resource}"


def where_limits_are_shown(explanation: Explanation) -> str:
    """Return the commands that show the limits which a pod would exceed."""
    commands = {
        "GpuQueue ": "'kubectl gpu queues -o wide'",
        "GpuQuota ": f"'kubectl gpu quota -n {explanation.namespace}'",
        "ResourceQuota ": f"'kubectl gpu top --namespaces -n {explanation.namespace}'",
    }
    return f"see {' and '.join(command for kind, command in commands.items() if kind in explanation.quota)}"


def _order(queue: PodQueue) -> Iterator[str]:
    if queue.rank:
        yield f"{_ordinal(queue.rank)} of {queue.waiting} waiting pod{'' if queue.waiting == 1 else 's'}"
    if queue.ahead is not None:
        yield f"{_named(queue.ahead.name)} is before it {_why(queue.ahead, queue)}"
    if queue.waits_for:
        yield f"waits for GpuQueue {queue.waits_for}, which is of a higher tier and has less than it asks for"
    if queue.is_behind_first:
        yield "an older pod of its queue has to be placed first (StrictFIFO)"


def _why(ahead: QueueAhead, own: PodQueue) -> str:
    match ahead.by:
        case "tier":
            return f"with tier {ahead.priority}"
        case "priority":
            return "with a pod of higher priority"
        case "share":
            if ahead.weight == own.weight or ahead.share is None or own.share is None:
                return f"with {_share(ahead)}"
            by_weight = f"{ahead.share / ahead.weight:.2f} by weight, against {own.share / own.weight:.2f}"
            return f"with {_share(ahead)} at weight {ahead.weight}: {by_weight}"
        case "age":
            return "with the same share and an older pod"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
