"""GpuClaims of the model: one or two whole cards, or a part of one. They are deleted whether pods use them or wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from allocation.names import APP_NAME, CLAIM
from tests.allocation.support.mig_cards import A100_PROFILES
from tests.scheduler.model import books
from tests.scheduler.model.cluster import GBPS, LINKED, MEMORY, TEAMS
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.pods import teams

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

DEVICES: dict[str, tuple[Object, ...]] = {
    "one": ({"count": 1}, {"count": 1, "exclusivity": "Shared", "memoryMiB": 3000}),
    "two": ({"count": 2}, {"count": 1}),
    "part": ({"count": 1, "exclusivity": "Shared", "memoryMiB": 2000}, {"count": 2}),
    "mig": (
        {"count": 1, "exclusivity": "MIG", "profile": "2g.10gb"},
        {"count": 2, "exclusivity": "MIG", "profile": "1g.5gb"},
    ),
    "linked": ({"count": 2}, {"count": 2, "exclusivity": "Shared", "memoryMiB": 3000}),
    "slot": ({"count": 1, "exclusivity": "Shared"}, {"count": 1}),
}
"""What a claim of each name gives; one that is created again may give something else."""
DEMANDS: dict[str, Object] = {"linked": {"topology": {"mode": "Required", "minBandwidthGBps": GBPS}}}
"""What else a claim says."""
PROFILES = {each.name: each.memory_mib for each in A100_PROFILES}


class Claims(Machine):
    """Each team has its own."""

    def __init__(self) -> None:
        super().__init__()
        self._claims: dict[tuple[str, str], Object] = {}

    @initialize()
    def claims(self) -> None:
        """There are most of them."""
        for team in TEAMS:
            for name in ("one", "two", "part", "mig", "linked"):
                self.claim(team, name, 0)

    @rule(team=teams, name=st.sampled_from(sorted(DEVICES)), other=st.sampled_from((0, 0, 1)))
    def claim(self, team: str, name: str, other: int) -> None:
        """There is a claim; one that gives something else was deleted, because the spec of a claim never changes."""
        devices = DEVICES[name][other]
        if self._claims.get((team, name), devices) != devices:
            self.no_claim(team, name)
        self._claims[team, name] = devices
        self.put("gpuclaims", name, {"devices": devices, **DEMANDS.get(name, {})}, team)

    @rule(team=teams, name=st.sampled_from(sorted(DEVICES)))
    def no_claim(self, team: str, name: str) -> None:
        """It is deleted; pods that have its cards keep them."""
        self._claims.pop((team, name), None)
        self.remove("gpuclaims", name, team)

    def placed(self, pods: list[Object]) -> None:
        """Check that pods get what their claims give at this moment."""
        super().placed(pods)
        for pod in pods:
            meta = pod["metadata"]
            if name := meta["annotations"].get(CLAIM):
                devices = self._claims[meta["namespace"], name]
                assert books.claim_of(pod)["exclusivity"] == devices.get("exclusivity", "Exclusive")
                assert len(books.cards_of(pod)) == devices["count"]
                assert name not in DEMANDS or pod["spec"]["nodeName"] == LINKED
                if APP_NAME not in meta["labels"]:  # what is bound to an application counts before its claim
                    assert {each.memory_mib for each in books.held(pod)} == {_memory(devices)}


def _memory(devices: Object) -> int:
    """Return the MiB that a claim gives of each card; a shared card without any is not limited."""
    whole = {"Exclusive": MEMORY, "Shared": 0, "MIG": PROFILES.get(devices.get("profile", ""), 0)}
    return int(devices.get("memoryMiB", whole[devices.get("exclusivity", "Exclusive")]))
