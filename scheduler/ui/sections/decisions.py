"""What the scheduler said about each pod and node last: the events that it records, as they are recorded."""

from collections import deque
from itertools import islice
from typing import Final

import msgspec

from allocation.steps import Steps
from cluster.events import Recorded
from scheduler.api.json_names import json_name
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER

SHOWN: Final = 500
"""The decisions that are shown, the last ones."""


class Decision(msgspec.Struct, frozen=True, rename=json_name):
    """One of them: when, about what object, and the fields of the event."""

    at: float
    kind: str
    name: str
    type: str
    reason: str
    note: str


class Decisions:
    """The last decisions, by a number that grows."""

    def __init__(self, recent: deque[Recorded]) -> None:
        self._recent = recent
        self._shown: deque[int] = deque()

    def refresh(self, table: Table) -> Steps[None]:
        """Add the new decisions, and remove the oldest."""
        yield
        last = self._shown[-1] if self._shown else -1
        new = [each for each in islice(reversed(self._recent), SHOWN) if each.serial > last]
        for each in reversed(new):
            content = msgspec.json.encode(decision(each))
            table.put(str(each.serial), content, namespace=each.event.regarding.namespace or CLUSTER)
            self._shown.append(each.serial)
        while len(self._shown) > SHOWN:
            table.remove(str(self._shown.popleft()))


def decision(recorded: Recorded) -> Decision:
    """Return an event as the page shows it."""
    event, regarding = recorded.event, recorded.event.regarding
    name = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
    return Decision(recorded.at, regarding.kind, name, event.type, event.reason, event.note)
