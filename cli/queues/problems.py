"""What the table of `kubectl gpu queues` does not show of the queues themselves."""

from collections.abc import Iterator

from scheduler.api.queue_types import QueuesView


def of_view(view: QueuesView) -> Iterator[str]:
    """Yield whether shares determine the order, and which queues take no pods."""
    if not view.fair_sharing:
        yield "no GpuQueue exists: free cards are offered by priority, then age, whatever share a namespace has"
    for each in view.queues:
        if each.suspended:
            waiting = "new pods wait" if each.redacted else _pods(each.waiting)
            yield f"GpuQueue {each.name} is suspended: {waiting} until spec.suspended is false"
        elif not each.exists:
            yield f"GpuQueue {each.name} does not exist: {_pods(each.waiting)} until it is created"


def _pods(waiting: int) -> str:
    return f"{waiting} pod{' waits' if waiting == 1 else 's wait'}"
