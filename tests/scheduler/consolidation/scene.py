"""Runs the consolidator of a test on the real state, queue and cycle; only the evictor is a stand-in.

Evicted pods end when a test ends them, and their controllers create others at once, as a ReplicaSet does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import msgspec

from scheduler.consolidation.consolidator import Consolidator
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import EvictionOutcome
from scheduler.objects import Owner
from scheduler.preemption import waiting_pod
from scheduler.settings import ConsolidationSettings
from tests.scheduler.support.builders import Clock, allocated, lease, pod, state
from tests.scheduler.support.driving import Driver
from tests.scheduler.support.preempting import planner_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.disruption_budget import PodDisruptionBudget
    from cluster.events import Recorder
    from cluster.metadata import Reference
    from scheduler.objects import Pod
    from scheduler.preemption.eligibility import EligiblePod
    from scheduler.preemption.evictor import Evictor
    from scheduler.state.cluster_state import ClusterState


def owned(made: Pod, *, kind: str = "ReplicaSet", of: str = "") -> Pod:
    """Return a pod with a controller of its own, or that with the UID `of`."""
    made.metadata.owner_references = (Owner(kind, of or f"set-{made.metadata.name}", controller=True),)
    return made


class FaultyEvictor:
    """Evicts at once, or refuses, as a test says.

    Attributes:
        outcome: of each eviction.
        evicted: the names of the pods that were evicted, in order.
        creates: whether controllers create others in place of evicted pods.
    """

    def __init__(self, driver: Driver) -> None:
        self.outcome = EvictionOutcome.EVICTED
        self.evicted: list[str] = []
        self.creates = True
        self._driver = driver
        self._serial = itertools.count()

    async def move(self, victim: EligiblePod, *, note: str, is_needed: Callable[[], bool]) -> EvictionOutcome:
        """Let a pod begin to end, and its controller create another one."""
        assert victim.pod.uid not in note
        if not is_needed():
            return EvictionOutcome.GONE
        if self.outcome is EvictionOutcome.EVICTED:
            name = victim.pod.metadata.name
            self.evicted.append(name)
            self._driver.begin_to_end(name)
            if self.creates:
                self._driver.add(self.replacement(victim.pod))
        return self.outcome

    def replacement(self, gone: Pod) -> Pod:
        """Return what the controller of a pod creates next."""
        name = f"{gone.metadata.name}-{next(self._serial)}"
        meta = msgspec.structs.replace(
            gone.metadata, name=name, uid=f"uid-{name}", annotations={}, deletion_timestamp=None
        )
        return msgspec.structs.replace(gone, metadata=meta, spec=msgspec.structs.replace(gone.spec, node_name=""))


class Events:
    """Keeps the events: the pod, the type, the reason and the note of each."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, str, str]] = []

    @property
    def reasons(self) -> list[str]:
        """The reasons of all events."""
        return [reason for _, _, reason, _ in self.written]

    def record(self, regarding: Reference, *, type: str, reason: str, action: str, note: str) -> None:  # noqa: A002
        """Keep an event."""
        assert action == "Consolidating"
        self.written.append((regarding.name, type, reason, note))


class Scene:
    """A cluster with a scheduler that moves pods.

    Attributes:
        clock: the scheduler's clock.
        state: what the scheduler knows.
        driver: its queue and cycle.
        evictor: carries out its evictions.
        metrics: the metrics.
        events: the events.
        consolidator: the controller.
    """

    def __init__(
        self,
        *nodes: str,
        cards: int = 2,
        made: ClusterState | None = None,
        budgets: tuple[PodDisruptionBudget, ...] = (),
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.state = made or state(*nodes, cards=cards, clock=self.clock)
        for name in nodes:
            self.state.set_lease(lease(name, seconds=10**6))
        self.driver = Driver(self.state)
        self.evictor = FaultyEvictor(self.driver)
        self.metrics = Metrics()
        self.events = Events()
        chosen = ConsolidationSettings(**{"enabled": True, **settings})
        self.consolidator = Consolidator(
            planner_of(self.state, *budgets, **settings),
            cast("Evictor", self.evictor),
            waiting=waiting_pod.of_queue(self.state),
            recorder=cast("Recorder", self.events),
            metrics=self.metrics,
            settings=chosen,
            nomination_seconds=360.0,
            clock=self.clock,
            is_trusted=lambda: True,
        )

    def run(self, *names: str, memory: int = 1000, kind: str = "ReplicaSet", **more: Any) -> None:
        """Let pods run: `pod@node` on its first card, `pod@node/1` on its second."""
        for each in names:
            name, _, place = each.partition("@")
            node, _, card = place.partition("/")
            running = owned(allocated(name, node=node, memory=memory, card=int(card or 0), **more), kind=kind)
            self.driver.running[name] = running
            self.state.set_pod(running)

    def wait(self, name: str = "large", **more: Any) -> Pod:
        """Create a pod that wants two whole cards."""
        limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1000"}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        made = pod(name, **{"containers": containers, **more})
        self.driver.add(made)
        return made

    async def look(self, *, seconds: float = 0.0) -> list[str]:
        """Place what fits, and let the controller look once some time later; return what could be placed then."""
        await self.driver.settle()
        self.clock.now += seconds
        await self.consolidator.look()
        return await self.driver.settle()

    def ends(self, *names: str) -> None:
        """Let evicted pods end."""
        for name in names:
            self.driver.end(name)

    def held(self) -> list[str]:
        """Return the pods for which cards are held, and where."""
        return sorted(f"{hold.uid}@{hold.node}" for hold in self.state.holds)

    def node_of(self, name: str) -> str:
        """Return the node of a pod."""
        return self.driver.running[name].spec.node_name if name in self.driver.running else ""

    def ended(self) -> str:
        """Return how the last plan ended."""
        return self.consolidator.ended.outcome.value if self.consolidator.ended is not None else ""
