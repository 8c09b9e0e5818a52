"""A pod that waits too long has a card held."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis.stateful import invariant

from tests.scheduler.model import books
from tests.scheduler.model.bindings import Bindings
from tests.scheduler.model.cluster import MOST_PODS, PATIENCE, TEAMS, UUIDS
from tests.scheduler.model.queues import Queues
from tests.scheduler.model.quotas import Quotas

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object


class PatienceRule(Bindings, Queues, Quotas):
    """It depends on the cards that a team may have at all."""

    @invariant()
    def whoever_waits_too_long_for_a_card_is_held_one(self) -> None:
        """A first pod that only other teams keep waiting; so small a fleet has one hold at a time."""
        if self.cluster.held(by_nominations=False):
            return
        bound = {uuid for uuid, _ in self.grants.values()}
        free = set(UUIDS) - bound - self.cluster.held(by_nominations=True) - self.cluster.closed
        for team in TEAMS:
            waiting = [name for name, pod in self.cluster.pods.items() if self._waits(pod, team)]
            own = {each.card for pod in self.cluster.placed if _is_of(pod, team) for each in books.held(pod)}
            places = Counter(
                pod["spec"]["nodeName"] for pod in self.cluster.placed if _is_of(pod, team) and books.held(pod)
            )
            own |= {uuid for uuid in UUIDS if places[uuid.split("-")[1]] >= MOST_PODS}
            if free - own and not self.quotas.get(team) and all(self.kinds[name] == "whole" for name in waiting):
                assert all(self.cluster.waiting_seconds(name) <= PATIENCE for name in waiting), waiting

    def _waits(self, pod: Object, team: str) -> bool:
        """Whether a pod of a team waits for its turn: one of a queue that takes no pods has none.

        One that preempts others waits for these, and has its cards held already. One whose reasons are out of date, as
        after a quota is gone, gets a hold when they have been computed again: after its back-off.
        """
        uid, queue = pod["metadata"]["uid"], self.cluster.state.queue
        entry = queue.get(uid)
        is_pausing = entry is not None and entry.is_stale and queue.clock() < entry.ready_at
        if self.cluster.state.holds.of(uid) is not None or is_pausing:
            return False
        return self.takes(pod) and _is_of(pod, team) and not {"nodeName", "schedulingGates"} & pod["spec"].keys()


def _is_of(pod: Object, team: str) -> bool:
    return pod["metadata"]["namespace"] == team
