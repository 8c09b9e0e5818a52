"""Pods that are assumed to see whether they fit, and forgotten again unless all of them are kept.

What they take comes back, so no pod is scheduled again because of a trial: neither for what one of its pods releases,
such as the hold that it had, nor when they are forgotten.
"""

from types import TracebackType
from typing import Final, Self

from allocation.steps import Steps, finish
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState

_FORGOTTEN: Final = 64
"""The pods that are forgotten in one step."""


class Trial:
    """One trial, from its begin to its end as a context; afterwards all is as before, unless it was kept."""

    def __init__(self, state: ClusterState) -> None:
        """Try pods in `state`."""
        self._state = state
        self._uids: list[str] = []
        self._holds = state.holds.pairs()

    def __enter__(self) -> Self:
        """Return the trial."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Forget the pods, and hold again what was held for pods before; not for pods that wait no longer."""
        finish(self.forget())
        self._state.restore_holds(self._holds)

    def add(self, uid: str) -> None:
        """Begin with one pod more, before it is assumed; one that is being bound already is none of the trial's."""
        if not self._state.node_cache.is_assumed(uid):
            self._uids.append(uid)
            self._state.tried.add(uid)

    def forget(self) -> Steps[None]:
        """Forget the pods, the last one first."""
        while self._uids:
            uid = self._uids.pop()
            self._state.forget(uid)
            self._state.tried.discard(uid)
            if len(self._uids) % _FORGOTTEN == 0:
                yield

    def keep(self) -> None:
        """Leave the pods where they are assumed, and offer others what is left of the holds that they took."""
        self._state.tried.difference_update(self._uids)
        if any(self._state.holds.of(hold.uid) is not hold for hold, _ in self._holds):
            self._state.queue.notify(ClusterEvent.POD_REMOVED)
        self._uids, self._holds = [], ()
