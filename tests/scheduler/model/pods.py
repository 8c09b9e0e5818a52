"""The model's pods: they come, run and end; some preempt others."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from allocation.names import ALLOCATION, API_GROUP, APP_NAME, APP_OWNER, CLAIM, CONSUME_POLICY, QUEUE
from tests.scheduler.model import books
from tests.scheduler.model.books import Books
from tests.scheduler.model.cluster import MOST_PODS, PATIENCE, TEAMS, TRUSTED, UUIDS
from tests.scheduler.model.machine import Machine

if TYPE_CHECKING:
    from scheduler.objects import Pod

DATA = "data"
"""The volume of a team (`Volumes`)."""
GPUMEM, GPU = "nvidia.com/gpumem", "nvidia.com/gpu"
GPUCORES, GPUTFLOPS = "nvidia.com/gpucores", "nvidia.com/gputflops"
_FURTHER = {"pair": {GPU: "2"}, "cores": {GPUCORES: "34"}, "tflops": {GPUTFLOPS: "104"}}
"""What a slice also requests, by kind."""
_PLAIN, _OF_CLAIMS = (
    (*("slice",) * 4, *("whole",) * 4, "pair", "pair", "cores", "tflops", "tflops"),
    ("one", "two", "part", "slot", "mig", "linked"),
)
_OF_APPLICATIONS, _FIXED = ("app", "app-single", "app-part"), ("fixed", "fixed-part")
KINDS = (*_PLAIN, "mps", "mps", "hami-core", "local", *_OF_CLAIMS, *_OF_APPLICATIONS, *_FIXED)
teams = st.sampled_from(TEAMS)


class Asked(NamedTuple):
    """A pod that a team wants."""

    team: str
    kind: str
    memory: int
    priority: int
    is_queued: bool
    is_gated: bool
    card: str

    @property
    def user(self) -> str:
        """The user who creates it."""
        return TRUSTED if self.kind.startswith("fixed") else "alice"

    def manifest(self, name: str) -> dict[str, Any]:
        """Return the pod as its team would write it."""
        limits: dict[str, str] = {GPU: "1", GPUMEM: str(self.memory), **_FURTHER.get(self.kind, {})}
        labels, annotations = {}, {}
        match self.kind:
            case "whole":
                limits = {GPU: "1"}
            case "mps" | "hami-core":
                annotations = {f"{API_GROUP}/isolation": self.kind}
            case "one" | "two" | "part" | "slot" | "mig" | "linked":
                limits, annotations = {}, {CLAIM: self.kind}
            case "app" | "app-single" | "app-part":
                labels = {APP_NAME: "render", APP_OWNER: "alice"}
                labels |= {CONSUME_POLICY: "single"} if self.kind == "app-single" else {}
            case "fixed":
                limits, annotations = {}, {ALLOCATION: self._allocation(self.memory)}
            case "fixed-part":
                limits, annotations = {}, {CLAIM: "part", ALLOCATION: self._allocation(2000)}
        if self.kind == "app-part":
            limits, annotations = {}, {CLAIM: "part"}
        labels |= {QUEUE: "shared"} if self.is_queued else {}
        metadata = {"name": name, "namespace": self.team, "labels": labels, "annotations": annotations}
        containers = [{"name": "main", "resources": {"limits": limits}}]
        spec = {"containers": containers, "priority": self.priority}
        spec |= (
            {"volumes": [{"name": DATA, "persistentVolumeClaim": {"claimName": DATA}}]} if self.kind == "local" else {}
        )
        spec |= {"schedulingGates": [{"name": "example.com/wait"}]} if self.is_gated else {}
        return {"metadata": metadata, "spec": spec}

    def _allocation(self, memory: int) -> str:
        """Return a static allocation of a part of one card."""
        _, node, index = self.card.split("-")
        share = {"uuid": self.card, "index": int(index), "memoryMiB": memory, "cores": 0}
        return json.dumps({"v": 1, "node": node, "containers": {"main": [share]}})


asked = st.builds(
    Asked,
    teams,
    st.sampled_from(KINDS),
    st.sampled_from((1000, 5000, 9000)),
    st.sampled_from((0, 0, 1000)),
    st.sampled_from((False, False, True)),
    st.sampled_from((*(False,) * 7, True)),
    st.sampled_from(UUIDS),
)


class Pods(Machine):
    """Pods of two teams, with two priorities."""

    def __init__(self) -> None:
        super().__init__()
        self._books = Books(self.cluster.sizes)
        self._count = 0
        self._wrong: list[str] = []
        self.cluster.scene.evictor.on_eviction = self._evicted

    @initialize(pods=st.lists(asked, min_size=2, max_size=8))
    def fill(self, pods: list[Asked]) -> None:
        """The cluster is in use from the beginning."""
        self.create(pods)

    @rule(pods=st.lists(asked, min_size=1, max_size=6))
    def create(self, pods: list[Asked]) -> None:
        """Pods come."""
        for each in pods:
            self._count += 1
            name = f"p{self._count}"
            if not self.run(self.cluster.create(each.manifest(name), user=each.user)):
                self.kinds[name] = each.kind
                self.created(name)
        self.look()

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Pods end, or are deleted."""
        self._end_some(data)
        self.look()

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), pods=st.lists(asked, min_size=1, max_size=4))
    def replace(self, data: st.DataObject, pods: list[Asked]) -> None:
        """Pods end, and others come at once."""
        self._end_some(data)
        self.create(pods)

    def _end_some(self, data: st.DataObject) -> None:
        pods = st.sampled_from(sorted(self.cluster.pods))
        for name in data.draw(st.lists(pods, min_size=1, max_size=4, unique=True)):
            self.cluster.end(name)

    @rule(seconds=st.sampled_from((1.0, 10.0, PATIENCE)))
    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.look(seconds)

    @invariant()
    def no_card_is_over_its_capacity_or_shared_against_a_claim(self) -> None:
        """Counted from the manifests."""
        assert self._books.problems(self.cluster.placed) == []

    @invariant()
    def no_node_has_more_pods_with_cards_than_it_may(self) -> None:
        """Counted from the manifests."""
        nodes = Counter(pod["spec"]["nodeName"] for pod in books.with_cards(self.cluster.placed).values())
        assert all(count <= MOST_PODS for count in nodes.values()), nodes

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
        counted: Counter[str] = Counter()
        for reservation in self.cluster.state.ledger.reservations():
            if reservation.is_pod:
                for charge in reservation.charges:
                    counted[charge.uuid] += charge.memory_mib
        assert +counted == +memory

    @invariant()
    def nobody_is_evicted_for_equal_priority(self) -> None:
        """Noted at each eviction."""
        assert not self._wrong

    def _evicted(self, preemptor: Pod, victim: Pod) -> None:
        if preemptor.spec.priority <= victim.spec.priority:
            self._wrong.append(f"{victim} is evicted for {preemptor}")
