"""The nodes that take no new GPU pods, whatever the pods: kept up to date node by node, as their sources change."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from allocation.reasons import NodeRejection
from scheduler.filters.node_rejections import NodeRejections


class TimedSource(Protocol):
    """A source that also rejects nodes because time passes, without an event.

    Attributes:
        due: the time after which it has to be refreshed; infinite if never.
    """

    due: float

    def refresh(self, now: float) -> None:
        """Reject the nodes that are to be rejected at `now`."""


class ClosedNodes:
    """The rejections by closed nodes. If several sources reject a node, the last of them says why."""

    def __init__(
        self,
        *sources: NodeRejections,
        timed: Collection[TimedSource],
        clock: Callable[[], float],
        on_change: Callable[[str], object],
        on_open: Callable[[], object],
    ) -> None:
        """Follow `sources`, of which those of `timed` are refreshed by `clock`, in seconds.

        `on_change` is called with each node whose rejection begins, ends or changes, `on_open` when one has ended.
        """
        self._sources = sources[::-1]
        self._timed = tuple(timed)
        self._clock = clock
        self._rejections: dict[str, NodeRejection] = {}
        self._on_change = on_change
        self._on_open = on_open
        for each in sources:
            each.follow(self._update)

    def now(self) -> Mapping[str, NodeRejection]:
        """Return the rejections by the nodes that are closed now, in a mapping that follows all changes."""
        now = self._clock()
        for each in self._timed:
            if now > each.due:
                each.refresh(now)
        return self._rejections

    def _update(self, node: str) -> None:
        rejection = next((each[node] for each in self._sources if node in each), None)
        if rejection == self._rejections.get(node):
            return
        if rejection is None:
            del self._rejections[node]
        else:
            self._rejections[node] = rejection
        self._on_change(node)
        if rejection is None:
            self._on_open()
