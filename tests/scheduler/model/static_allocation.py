"""Static allocations of the model: a trusted user has chosen the card of a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from allocation.names import ALLOCATION
from tests.scheduler.model import books
from tests.scheduler.model.machine import Machine

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object


class StaticAllocations(Machine):
    """Some pods have one (`Asked.kind`)."""

    def __init__(self) -> None:
        super().__init__()
        self._chosen: dict[str, str] = {}

    def created(self, name: str) -> None:
        """Note what was chosen."""
        super().created(name)
        text = self.cluster.pods[name]["metadata"].get("annotations", {}).get(ALLOCATION)
        if text:
            self._chosen[name] = text

    def placed(self, pods: list[Object]) -> None:
        """Check that each gets what was chosen, and nothing else."""
        super().placed(pods)
        for pod in pods:
            if chosen := self._chosen.get(pod["metadata"]["name"]):
                assert pod["spec"]["nodeName"] == json.loads(chosen)["node"]
                assert json.loads(pod["metadata"]["annotations"][books.ALLOCATION]) == json.loads(chosen)
