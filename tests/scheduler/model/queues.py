"""The GpuQueue of the model, which the pods of both teams may name, or their namespaces for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from allocation.names import CHARGED_TO, QUEUE
from tests.scheduler.model import books
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.pods import GPUMEM, teams

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

SHARED = "shared"


class Queues(Machine):
    """One queue, or none."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: dict[str, Any] | None = None
        self._labelled: set[str] = set()

    @initialize(is_there=st.booleans())
    def share_fairly(self, *, is_there: bool) -> None:
        """There may be one from the beginning."""
        if is_there:
            self.queue(1, suspended=False, most=None, memory=None)

    @rule(
        weight=st.integers(1, 4),
        suspended=st.sampled_from((False, False, False, True)),
        most=st.sampled_from((None, 1, 3)),
        memory=st.sampled_from((None, 15_000)),
    )
    def queue(self, weight: int, *, suspended: bool, most: int | None, memory: int | None) -> None:
        """It changes."""
        spec = {"namespaceSelector": {}, "weight": weight, "suspended": suspended}
        spec |= {"maxInstances": most} if most is not None else {}
        spec |= {"limits": {GPUMEM: memory}} if memory is not None else {}
        self._queue = spec
        self.put("gpuqueues", SHARED, spec)

    @rule()
    def no_queue(self) -> None:
        """It is deleted."""
        self._queue = None
        self.remove("gpuqueues", SHARED)

    @rule(team=teams, is_queued=st.booleans())
    def namespace(self, team: str, *, is_queued: bool) -> None:
        """The queue is that of all pods of a team that name none, or not any more."""
        (self._labelled.add if is_queued else self._labelled.discard)(team)
        self.run(self.cluster.put("namespaces", {"metadata": {"name": team, "labels": self._labels(team)}}))
        self.changed()

    def takes(self, pod: Object) -> bool:
        """Whether the queue of a pod takes any."""
        spec = self._queue
        if self._queue_of(pod) != SHARED:
            return True
        return spec is not None and not {"maxInstances", "limits"} & spec.keys() and not spec["suspended"]

    def placed(self, pods: list[Object]) -> None:
        """Check that the queue took the pods, and has no more than it may, and that it pays."""
        super().placed(pods)
        for pod in pods:
            if self._queue is not None and books.held(pod):
                assert pod["metadata"]["annotations"][CHARGED_TO] == self._queue_of(pod)
        if any(self._queue_of(pod) == SHARED for pod in pods):
            assert self._queue is not None
            assert not self._queue["suspended"]
            paid = [each for each in self.cluster.placed if self._payer(each) == SHARED]
            assert len(paid) <= self._queue.get("maxInstances", len(paid))
            memory = sum(map(books.memory_of, paid)) if not any(map(self.is_fixed, pods)) else 0
            assert memory <= self._queue.get("limits", {}).get(GPUMEM, memory)

    def _payer(self, pod: Object) -> str:
        """Return the queue that was written with the Binding of a pod; as its labels say, if there was no queue."""
        return str(pod["metadata"]["annotations"].get(CHARGED_TO) or self._queue_of(pod))

    def _queue_of(self, pod: Object) -> str:
        labels = {**self._labels(pod["metadata"]["namespace"]), **pod["metadata"].get("labels", {})}
        return labels.get(QUEUE) or f"namespace/{pod['metadata']['namespace']}"

    def _labels(self, team: str) -> dict[str, str]:
        return {QUEUE: SHARED} if team in self._labelled else {}
