"""GpuQuotas of the model: for all pods of a team, or for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.scheduler.model import books
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.pods import GPUMEM, teams

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

_MANY = 99


class Quotas(Machine):
    """Each team has one, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas: dict[str, Object] = {}
        self._at_placement: dict[str, Object] = {}

    @initialize(limited=st.sets(teams), single=st.booleans())
    def limit(self, limited: set[str], *, single: bool) -> None:
        """Teams may have one from the beginning."""
        for team in sorted(limited):
            self.quota(team, 3, 15_000, single=single)

    @rule(team=teams, most=st.sampled_from((1, 3)), memory=st.sampled_from((4000, 15_000)), single=st.booleans())
    def quota(self, team: str, most: int, memory: int, *, single: bool) -> None:
        """A team gets one."""
        spec: dict[str, Any] = {"total": {"limits": {GPUMEM: memory}, "maxPods": most}}
        if single:
            spec = {"single": {"limits": {GPUMEM: memory}, "maxCards": 1}}
        self.quotas[team] = spec
        self.put("gpuquotas", "q", spec, team)

    @rule(team=teams)
    def no_quota(self, team: str) -> None:
        """It is deleted."""
        self.quotas.pop(team, None)
        self.remove("gpuquotas", "q", team)

    def placed(self, pods: list[Object]) -> None:
        """Check the teams to which pods were just added."""
        super().placed(pods)
        for pod in pods:
            self._at_placement[pod["metadata"]["name"]] = self.quotas.get(pod["metadata"]["namespace"], {})
        fixed = {pod["metadata"]["namespace"] for pod in pods if self.is_fixed(pod)}
        for team in {pod["metadata"]["namespace"] for pod in pods} - fixed:
            self._check_total(team, self._total(team))

    def _total(self, team: str) -> Object:
        total: Object = self.quotas.get(team, {}).get("total", {})
        return total

    def resized(self, pod: Object, *, is_larger: bool) -> None:
        """Check the team of a pod that has got more."""
        super().resized(pod, is_larger=is_larger)
        team = pod["metadata"]["namespace"]
        if is_larger:
            self._check_total(team, {key: value for key, value in self._total(team).items() if key != "maxPods"})

    def _check_total(self, team: str, total: Object) -> None:
        """A team to which a pod was just added has no more than it may have."""
        pods = [pod for pod in self.cluster.placed if pod["metadata"]["namespace"] == team]
        assert len(pods) <= total.get("maxPods", len(pods))
        memory = sum(books.memory_of(pod) for pod in pods)
        assert memory <= total.get("limits", {}).get(GPUMEM, memory)

    @invariant()
    def no_pod_has_more_cards_than_one_pod_may(self) -> None:
        """By the quota that was there when it was placed."""
        for pod in self.cluster.placed:
            most = self._quota_of(pod).get("single", {}).get("maxCards", _MANY)
            assert len(books.cards_of(pod)) <= most, (pod["metadata"], most)

    @invariant()
    def no_limited_pod_has_memory_without_a_limit(self) -> None:
        """Where a quota limits memory, what is not stated is filled in or refused."""
        for pod in self.cluster.placed:
            limited = {name for part in self._quota_of(pod).values() for name in part.get("limits", {})}
            assert not (GPUMEM in limited and books.unlimited(pod)), pod["metadata"]

    def _quota_of(self, pod: Object) -> Object:
        return self._at_placement[pod["metadata"]["name"]]
