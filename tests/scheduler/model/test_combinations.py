"""Everything on at once: claims, bindings, queues, quotas, priorities and preemption, in any order.

The invariants are those of docs/threat-model.md and of the pages of the features; the books are apart from the product.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from allocation.names import APP_NAME, APP_OWNER, CLAIM, CONSUME_POLICY, QUEUE
from tests.scheduler.model import books
from tests.scheduler.model.books import Books
from tests.scheduler.model.cluster import CARDS, MEMORY, NODES, PATIENCE, SLOTS, TEAMS, Cluster
from tests.support.depth import DEEP

if TYPE_CHECKING:
    from scheduler.objects import Pod

UUIDS = [f"GPU-{node}-{index}" for node in NODES for index in range(CARDS)]
teams = st.sampled_from(TEAMS)
GPUMEM, GPU = "nvidia.com/gpumem", "nvidia.com/gpu"


class Asked(NamedTuple):
    """A pod that a team wants."""

    team: str
    kind: str
    memory: int
    priority: int
    is_queued: bool

    def manifest(self, name: str) -> dict[str, Any]:
        """Return the pod as its team would write it."""
        limits: dict[str, str] = {GPU: "1", GPUMEM: str(self.memory)}
        labels, annotations = {}, {}
        match self.kind:
            case "whole":
                limits = {GPU: "1"}
            case "pair":
                limits[GPU] = "2"
            case "one" | "two" | "part" | "slot":
                limits, annotations = {}, {CLAIM: self.kind}
            case "app" | "app-single" | "app-part":
                labels = {APP_NAME: "render", APP_OWNER: "alice"}
                labels |= {CONSUME_POLICY: "single"} if self.kind == "app-single" else {}
        if self.kind == "app-part":
            limits, annotations = {}, {CLAIM: "part"}
        labels |= {QUEUE: "shared"} if self.is_queued else {}
        metadata = {"name": name, "namespace": self.team, "labels": labels, "annotations": annotations}
        containers = [{"name": "main", "resources": {"limits": limits}}]
        return {"metadata": metadata, "spec": {"containers": containers, "priority": self.priority}}


KINDS = ("slice", "slice", "whole", "whole", "pair", "one", "two", "part", "slot", "app", "app-single", "app-part")
asked = st.builds(
    Asked,
    teams,
    st.sampled_from(KINDS),
    st.sampled_from((1000, 5000, 9000)),
    st.sampled_from((0, 0, 1000)),
    st.booleans(),
)


class Combinations(RuleBasedStateMachine):
    """A small cluster with everything on."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.cluster = Cluster()
        self.books = Books(memory_mib=MEMORY, slots=SLOTS)
        self.count = 0
        self.quotas: dict[str, dict[str, Any]] = {}
        self.wrong: list[str] = []
        self.at_placement: dict[str, dict[str, Any]] = {}
        self.bindings: dict[str, str] = {}
        self.grants: dict[str, tuple[str, str]] = {}
        self.granted: dict[str, dict[str, tuple[str, str]] | None] = {}
        self.kinds: dict[str, str] = {}
        self.is_queue_open = False
        self.cluster.scene.evictor.on_eviction = self._evicted

    def _run(self, what: Any) -> Any:
        return self.runner.run(what)

    @initialize(alices=st.integers(0, 2), mode=st.sampled_from((1, 0, 2)), limited=st.sets(teams), single=st.booleans())
    def start(self, alices: int, mode: int, limited: set[str], *, single: bool) -> None:
        """Admission knows the cluster; alice may have cards, and teams quotas."""
        self._run(self.cluster.start())
        for team in TEAMS:
            for claim in ("one", "two", "part"):
                self.claim(team, claim)
        for name, uuid in zip("xy"[:alices], UUIDS, strict=False):
            self.bind(name, uuid, "alice", "3Gi")
            self.share(uuid, mode)
        for team in sorted(limited):
            self.quota(team, 3, 15_000, single=single)

    def teardown(self) -> None:
        """End what runs."""
        self._run(self.cluster.stop())
        self.runner.close()

    # ---- objects -----------------------------------------------------------------------------------------------------

    @rule(team=teams, most=st.sampled_from((1, 3)), memory=st.sampled_from((4000, 15_000)), single=st.booleans())
    def quota(self, team: str, most: int, memory: int, *, single: bool) -> None:
        """A team gets a GpuQuota: for all its pods, or for each."""
        spec: dict[str, Any] = {"total": {"limits": {GPUMEM: memory}, "maxPods": most}}
        if single:
            spec = {"single": {"limits": {GPUMEM: memory}, "maxCards": 1}}
        self.quotas[team] = spec
        self._run(self.cluster.put("gpuquotas", {"metadata": {"name": "q", "namespace": team}, "spec": spec}))

    @rule(team=teams)
    def no_quota(self, team: str) -> None:
        """It is deleted."""
        self.quotas.pop(team, None)
        self._run(self.cluster.remove("gpuquotas", "q", team))

    @rule(
        name=st.sampled_from("xy"),
        uuid=st.sampled_from(UUIDS),
        owner=st.sampled_from(("alice", "bob")),
        memory=st.sampled_from(("", "3Gi")),
    )
    def bind(self, name: str, uuid: str, owner: str, memory: str) -> None:
        """A card is given to a user's application, or a part of its memory."""
        spec = {"uuid": uuid, "appName": "render", "owner": owner, "podSelector": {}}
        spec |= {"memory": memory} if memory else {}
        self.bindings[name] = uuid
        self.grants[name] = uuid, memory
        self._run(self.cluster.put("gpubindings", {"metadata": {"name": name}, "spec": spec}))

    @rule(uuid=st.sampled_from(UUIDS), mode=st.integers(0, 2))
    def share(self, uuid: str, mode: int) -> None:
        """How pods share a bound card changes."""
        self.cluster.share(uuid, mode)

    @rule(name=st.sampled_from("xy"))
    def unbind(self, name: str) -> None:
        """It is taken away."""
        self.bindings.pop(name, None)
        self.grants.pop(name, None)
        self._run(self.cluster.remove("gpubindings", name))

    @rule(team=teams, name=st.sampled_from(("one", "two", "part", "slot")))
    def claim(self, team: str, name: str) -> None:
        """There is a claim: for one or two whole cards, or for a part of one."""
        devices = {
            "one": {"count": 1},
            "two": {"count": 2},
            "part": {"count": 1, "exclusivity": "Shared", "memoryMiB": 2000},
            "slot": {"count": 1, "exclusivity": "Shared"},
        }[name]
        content = {"metadata": {"name": name, "namespace": team}, "spec": {"devices": devices}}
        self._run(self.cluster.put("gpuclaims", content))

    @rule(weight=st.integers(1, 4), suspended=st.booleans())
    def queue(self, weight: int, *, suspended: bool) -> None:
        """A queue for all changes."""
        self.is_queue_open = not suspended
        spec = {"namespaceSelector": {}, "weight": weight, "suspended": suspended}
        self._run(self.cluster.put("gpuqueues", {"metadata": {"name": "shared"}, "spec": spec}))
        self._look()

    # ---- pods --------------------------------------------------------------------------------------------------------

    @rule(pods=st.lists(asked, min_size=1, max_size=6))
    def create(self, pods: list[Asked]) -> None:
        """Pods come."""
        for each in pods:
            self.count += 1
            made = each.manifest(f"p{self.count}")
            if not self._run(self.cluster.create(made)):
                self.kinds[made["metadata"]["name"]] = each.kind
                self.granted[made["metadata"]["name"]] = dict(self.grants)
        self._look()

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod ends, or is deleted."""
        self.cluster.end(data.draw(st.sampled_from(sorted(self.cluster.pods))))
        self._look()

    @rule(seconds=st.sampled_from((1.0, 10.0, PATIENCE)))
    def look(self, seconds: float) -> None:
        """Time goes by."""
        self._look(seconds)

    def _look(self, seconds: float = 1.0) -> None:
        """Let the scheduler place pods, by the quotas that there are."""
        self._run(self.cluster.look(seconds))
        new = [pod for pod in self.cluster.placed if pod["metadata"]["name"] not in self.at_placement]
        for pod in new:
            self.at_placement[pod["metadata"]["name"]] = self.quotas.get(pod["metadata"]["namespace"], {})
            if self.granted[pod["metadata"]["name"]] != self.grants:
                self.granted[pod["metadata"]["name"]] = None  # what admission knew was not true any more
        for team in {pod["metadata"]["namespace"] for pod in new}:
            self._check_total(team, self.quotas.get(team, {}).get("total", {}))

    def _check_total(self, team: str, total: dict[str, Any]) -> None:
        """A team to which a pod was just added has no more than it may have."""
        pods = [pod for pod in self.cluster.placed if pod["metadata"]["namespace"] == team]
        assert len(pods) <= total.get("maxPods", len(pods))
        memory = sum(books.memory_of(pod) for pod in pods)
        assert memory <= total.get("limits", {}).get(GPUMEM, memory)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def no_card_is_over_its_capacity_or_shared_against_a_claim(self) -> None:
        """Counted from the manifests."""
        assert self.books.problems(self.cluster.placed) == []

    @invariant()
    def the_ledger_is_what_the_manifests_say(self) -> None:
        """For each card, what pods have is what the scheduler counts."""
        memory: Counter[str] = Counter()
        for pod in self.cluster.placed:
            seen: set[str] = set()
            for each in books.held(pod):
                if not (books.claim_of(pod) and each.card in seen):
                    memory[each.card] += each.memory_mib
                seen.add(each.card)
        ledger = self.cluster.scene.state.ledger
        counted: Counter[str] = Counter()
        for reservation in ledger.reservations():
            if reservation.uid.startswith("uid-"):
                for charge in reservation.charges:
                    counted[charge.uuid] += charge.memory_mib
        assert +counted == +memory

    @invariant()
    def no_pod_has_more_cards_than_one_pod_may(self) -> None:
        """By the quota that was there when it was placed."""
        for pod in self.cluster.placed:
            most = self._quota_of(pod).get("single", {}).get("maxCards")
            assert most is None or len(books.cards_of(pod)) <= most, (pod["metadata"], most)

    @invariant()
    def a_slice_is_what_its_container_states(self) -> None:
        """Where memory is counted and the card is not the pod's alone, admission and scheduler mean the same amount.

        Unless bindings differ in what they give, or have changed since admission.
        """
        for pod in self.cluster.placed:
            granted = self.granted[pod["metadata"]["name"]]
            is_known = granted is not None and len({memory for _, memory in granted.values()}) <= 1
            for each in books.held(pod):
                if is_known and books.stated(pod) and each.memory_mib not in (0, MEMORY):
                    assert each.memory_mib == books.stated(pod), pod["metadata"]

    @invariant()
    def no_limited_pod_has_memory_without_a_limit(self) -> None:
        """Where a quota limits memory, what is not stated is filled in or refused."""
        for pod in self.cluster.placed:
            quota = self._quota_of(pod)
            limited = {name for part in quota.values() for name in part.get("limits", {})}
            assert not (GPUMEM in limited and books.unlimited(pod)), pod["metadata"]

    @invariant()
    def whoever_waits_too_long_for_a_card_is_held_one(self) -> None:
        """A first pod that only other teams keep waiting; so small a fleet has one hold at a time."""
        if self.cluster.held(by_nominations=False):
            return
        free = set(UUIDS) - set(self.bindings.values()) - self.cluster.held(by_nominations=True)
        for team in TEAMS:
            waiting = [name for name, pod in self.cluster.pods.items() if self._waits(pod, team)]
            own = {each.card for pod in self.cluster.placed if _is_of(pod, team) for each in books.held(pod)}
            if free - own and not self.quotas.get(team) and all(self.kinds[name] == "whole" for name in waiting):
                assert all(self.cluster.waiting_seconds(name) <= PATIENCE for name in waiting), waiting

    def _waits(self, pod: dict[str, Any], team: str) -> bool:
        """Whether a pod of a team waits for its turn: one of a queue that takes no pods has none."""
        has_turn = self.is_queue_open or QUEUE not in pod["metadata"].get("labels", {})
        return has_turn and _is_of(pod, team) and not pod["spec"].get("nodeName")

    def _quota_of(self, pod: dict[str, Any]) -> dict[str, Any]:
        return self.at_placement[pod["metadata"]["name"]]

    @invariant()
    def nobody_is_evicted_for_equal_priority(self) -> None:
        """Noted at each eviction."""
        assert not self.wrong

    def _evicted(self, preemptor: Pod, victim: Pod) -> None:
        if preemptor.spec.priority <= victim.spec.priority:
            self.wrong.append(f"{victim} is evicted for {preemptor}")


def _is_of(pod: dict[str, Any], team: str) -> bool:
    return pod["metadata"]["namespace"] == team


Combinations.TestCase.settings = settings(
    max_examples=1000 if DEEP else 100, stateful_step_count=50 if DEEP else 30, deadline=None
)
TestCombinations = Combinations.TestCase
