"""The table of `kubectl gpu queues`: one row per queue."""

from collections.abc import Iterator
from typing import Final

from cli.tables import NOTHING, Table
from scheduler.api.queue_types import QueuesView, QueueView

_BAR: Final = 10


def of_queues(view: QueuesView, *, wide: bool) -> Table:
    """Return one row per queue; the wide table adds what the share is of, the limits, and whether it is suspended."""
    headers = ["NAME", "WEIGHT", "PRIORITY", "SHARE", "ENTITLED", "RUNNING", "WAITING", "NEXT"]
    headers += ["DOMINANT", "LIMITS", "SUSPENDED"] if wide else []
    return Table(headers, [_row(each, wide=wide) for each in view.queues])


def bar(share: float | None) -> str:
    """Return a share as a bar of ten characters with the number; one that is not zero has at least one mark."""
    if share is None:
        return f"{'#' * _BAR} inf"
    filled = min(_BAR, max(round(share * _BAR), int(share > 0)))
    return f"{'#' * filled}{'.' * (_BAR - filled)} {share:.2f}"


def _row(queue: QueueView, *, wide: bool) -> list[str]:
    row = [
        queue.name,
        str(queue.weight),
        str(queue.priority),
        bar(queue.share),
        f"{queue.entitlement:.2f}",
        str(queue.running),
        str(queue.waiting),
        queue.next[0] if queue.next else NOTHING,
    ]
    if not wide:
        return row
    limits = ",".join(_limits(queue)) or NOTHING
    return [*row, queue.dominant_resource or NOTHING, limits, "yes" if queue.suspended else "no"]


def _limits(queue: QueueView) -> Iterator[str]:
    """Yield what the queue has of each limited resource, such as `nvidia.com/gpu=3/8`."""
    for resource, limit in queue.limits.items():
        yield f"{resource}={queue.allocated.get(resource, 0)}/{limit}"
    if queue.max_instances is not None:
        yield f"pods={queue.running}/{queue.max_instances}"
