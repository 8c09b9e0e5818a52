"""The GpuQueue of the model, which pods of both teams may name."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from allocation.names import QUEUE
from tests.scheduler.model.machine import Machine, Object


class Queues(Machine):
    """One queue, which does not exist in the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.is_queue_open = False

    @rule(weight=st.integers(1, 4), suspended=st.booleans())
    def queue(self, weight: int, *, suspended: bool) -> None:
        """It changes."""
        self.is_queue_open = not suspended
        self.put("gpuqueues", "shared", {"namespaceSelector": {}, "weight": weight, "suspended": suspended})
        self.look()

    def placed(self, pods: list[Object]) -> None:
        """Check that no pod is placed whose queue takes none."""
        super().placed(pods)
        assert self.is_queue_open or not any(QUEUE in pod["metadata"].get("labels", {}) for pod in pods)
