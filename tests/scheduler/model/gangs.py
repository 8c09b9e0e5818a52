"""Gangs of the model: their pods get nodes together or not at all, whatever else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from allocation.names import GANG, GANG_MIN_MEMBERS
from allocation.steps import finish
from scheduler.gang_scheduling.gang_cycle import GangCycle, ScheduledGang
from tests.scheduler.model.cluster import UUIDS
from tests.scheduler.model.pods import Asked, Pods, teams
from tests.scheduler.support.scheduling import cycle_of

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

_KINDS = ("slice", "slice", "whole", "whole", "pair", "one", "part", "app-single", "mig")


class Gangs(Pods):
    """Gangs of two to four pods, of which some come later, or are more than necessary."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}
        """The size of each gang by its name."""

    @rule(
        team=teams,
        kind=st.sampled_from(_KINDS),
        size=st.integers(2, 4),
        more=st.integers(-1, 1),
        priority=st.sampled_from((0, 0, 1000)),
        is_queued=st.booleans(),
    )
    def create_gang(self, team: str, kind: str, size: int, more: int, priority: int, *, is_queued: bool) -> None:
        """The pods of a gang come."""
        name = f"g{len(self._sizes)}"
        self._sizes[name] = size
        asked = Asked(team, kind, 5000, priority, is_queued, is_gated=False, card=UUIDS[0])
        for _ in range(size + more):
            self._create(asked, name)
        self.look()

    @rule(data=st.data(), team=teams)
    def add_member(self, data: st.DataObject, team: str) -> None:
        """A gang gets another pod: the last one that was missing, one in the place of another, or one more."""
        if self._sizes:
            name = data.draw(st.sampled_from(sorted(self._sizes)))
            self._create(Asked(team, "slice", 1000, 0, is_queued=False, is_gated=False, card=UUIDS[0]), name)
            self.look()

    def _create(self, asked: Asked, gang: str) -> None:
        self._count += 1
        name = f"p{self._count}"
        manifest = asked.manifest(name)
        manifest["metadata"]["annotations"] |= {GANG: gang, GANG_MIN_MEMBERS: str(self._sizes[gang])}
        if not self.run(self.cluster.create(manifest, user=asked.user)):
            self.kinds[name] = f"gang-{asked.kind}"
            self.created(name)

    def placed(self, pods: list[Object]) -> None:
        """Check that a gang of which pods have got nodes has as many as it needs."""
        super().placed(pods)
        for gang in {key for pod in pods if (key := _gang_of(pod))}:
            members = [pod for pod in self.cluster.placed if _gang_of(pod) == gang]
            assert len(members) >= self._sizes[gang[1]], (gang, [pod["metadata"]["name"] for pod in members])

    def settled(self) -> None:
        """Check that no gang waits that would fit."""
        super().settled()
        state = self.cluster.state
        for gang in state.gangs:
            entries = [entry for uid in gang.waiting if (entry := state.queue.get(uid)) is not None]
            if entries and not gang.is_satisfied and gang.is_complete and gang.pause_until <= state.queue.clock():
                found = finish(GangCycle(cycle_of(state)).schedule(gang, entries, is_rehearsal=True))
                assert not isinstance(found, ScheduledGang), (gang.key, found)

    @invariant()
    def a_gang_that_waits_holds_nothing(self) -> None:
        """Neither cards nor Leases: what is assumed for it is forgotten in the same step."""
        state = self.cluster.state
        for gang in state.gangs:
            for uid in gang.waiting:
                assert state.ledger.reservation(uid) is None
                assert uid not in self.cluster.leases.values()


def _gang_of(pod: Object) -> tuple[str, str]:
    """Return the namespace and the gang of a pod, or an empty tuple."""
    metadata = pod["metadata"]
    gang = metadata.get("annotations", {}).get(GANG)
    return (metadata["namespace"], gang) if gang else ()  # type: ignore[return-value]
