"""GpuClaims of the model: one or two whole cards, or a part of one."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.scheduler.model.cluster import TEAMS
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.pods import teams

DEVICES = {
    "one": {"count": 1},
    "two": {"count": 2},
    "part": {"count": 1, "exclusivity": "Shared", "memoryMiB": 2000},
    "slot": {"count": 1, "exclusivity": "Shared"},
}


class Claims(Machine):
    """Each team has its own."""

    @initialize()
    def claims(self) -> None:
        """There are most of them."""
        for team in TEAMS:
            for name in ("one", "two", "part"):
                self.claim(team, name)

    @rule(team=teams, name=st.sampled_from(sorted(DEVICES)))
    def claim(self, team: str, name: str) -> None:
        """There is a claim."""
        self.put("gpuclaims", name, {"devices": DEVICES[name]}, team)
