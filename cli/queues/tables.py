"""The table of `kubectl gpu queues`, one row per queue, and the notes below it."""

from collections.abc import Iterator
from typing import Final

from allocation.fairness.queue_spec import QueueKey
from cli.tables import NOTHING, Table, listed
from scheduler.api.queue_types import QueuesView, QueueView

_BAR: Final = 10
_SHOWN: Final = 3
_HIDDEN: Final = ("<hidden>",)
"""What users with rights in another namespace see of a queue's use."""


def of_queues(view: QueuesView, *, wide: bool) -> Table:
    """Return one row per queue; the wide table adds what the share is of, the limits, and whether it is suspended."""
    headers = ["NAME", "WEIGHT", "PRIORITY", "SHARE", "ENTITLED", "BALANCE", "RUNNING", "WAITING", "NEXT"]
    headers += ["DOMINANT", "LIMITS", "SUSPENDED", "RECLAIM"] if wide else []
    return Table(headers, [_row(each, wide=wide) for each in view.queues])


def bar(share: float | None) -> str:
    """Return a share as a bar of ten characters with the number; one that is not zero has at least one mark."""
    if share is None:
        return f"{'#' * _BAR} inf"
    filled = min(_BAR, max(round(share * _BAR), int(share > 0)))
    return f"{'#' * filled}{'.' * (_BAR - filled)} {share:.2f}"


def _row(queue: QueueView, *, wide: bool) -> list[str]:
    next_pod = queue.next[0] if queue.next else NOTHING
    counted = [
        bar(queue.share),
        _entitlement(queue),
        _balance(queue.excess_cards),
        str(queue.running),
        str(queue.waiting),
        next_pod,
    ]
    row = [queue.name, str(queue.weight), str(queue.priority), *(_HIDDEN * 6 if queue.redacted else counted)]
    if not wide:
        return row
    limits = ",".join(_limits(queue)) or NOTHING
    dominant = queue.dominant_resource or NOTHING
    return [
        *row,
        *(_HIDDEN if queue.redacted else [dominant]),
        limits,
        "yes" if queue.suspended else "no",
        queue.reclaim,
    ]


def _entitlement(queue: QueueView) -> str:
    """Return what a queue is entitled to; in parentheses what it would be with pods, so that the others add up to 1."""
    share = f"{queue.entitlement:.2f}"
    return share if queue.running or queue.waiting else f"({share})"


def _balance(excess_cards: float | None) -> str:
    """Return how many cards a queue has more than its entitlement, such as `+2.5`, or is owed, such as `-2.5`."""
    if excess_cards is None:
        return "+inf"
    return f"{excess_cards:+.1f}" if excess_cards else "0"


def _limits(queue: QueueView) -> Iterator[str]:
    """Yield what the queue has of each limited resource, such as `nvidia.com/gpu=3/8`."""
    for resource, limit in queue.limits.items():
        yield f"{resource}={'?' if queue.redacted else queue.allocated.get(resource, 0)}/{limit}"
    if queue.max_instances is not None:
        yield f"pods={'?' if queue.redacted else queue.running}/{queue.max_instances}"


def notes(view: QueuesView) -> Iterator[str]:
    """Yield whether shares determine the order, which queues owe cards to others, and which take no pods."""
    if not view.fair_sharing:
        yield "no GpuQueue exists: free cards are offered by priority, then age, whatever share a namespace has"
    else:
        yield from _debts(view)
    for each in view.queues:
        if each.suspended:
            waiting = "new pods wait" if each.redacted else _pods(each.waiting)
            yield f"GpuQueue {each.name} is suspended: {waiting} until spec.suspended is false"
        elif not each.exists:
            yield f"GpuQueue {each.name} does not exist: {_pods(each.waiting)} until it is created"


def _debts(view: QueuesView) -> Iterator[str]:
    """Yield how many cards each queue is owed, and which have more than their entitlement; nothing without these."""
    above = [f"{_named(each)} ({_balance(each.excess_cards)})" for each in view.queues if each.overused]
    for each in view.queues if above else ():
        if each.underused:
            how = "waits until pods end" if each.reclaim == "Never" else f"reclaims ({each.reclaim})"
            cards = f"{-(each.excess_cards or 0):.1f} cards"
            yield f"{_named(each)} is owed {cards} and {how}; above their entitlement: {listed(above, shown=_SHOWN)}"


def _named(queue: QueueView) -> str:
    return QueueKey.of_annotation(queue.name).words


def _pods(waiting: int) -> str:
    return f"{waiting} pod{' waits' if waiting == 1 else 's wait'}"
