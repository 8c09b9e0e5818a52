"""Runs the preemption controller of a test on the real state, queue and cycle; only the evictor is a stand-in."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import EvictionOutcome
from scheduler.preemption import waiting_pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.preemption.gang_choice import GangChooser
from scheduler.preemption.preemptor import Preemptor
from scheduler.settings import PreemptionSettings
from tests.scheduler.support.builders import Clock, allocated, lease, state
from tests.scheduler.support.driving import Driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cluster.disruption_budget import PodDisruptionBudget
    from scheduler.objects import Pod
    from scheduler.preemption.eligibility import EligiblePod
    from scheduler.preemption.evictor import Evictor, Nomination

NOW = 1767225600.0 + 3600
"""An hour after the pods of `builders` are created."""


class FaultyEvictor:
    """Evicts at once, or refuses, as a test says; the pods that it evicts end when the test ends them.

    Attributes:
        refuses: whether evictions are refused.
        evicted: the names of the victims, in order.
        nominated: the names of the preemptors, in order.
        cleared: the names of the pods whose nomination was removed.
        on_eviction: called with each victim, before it is evicted.
        while_evicting: awaited once, before the first victim.
    """

    def __init__(self, driver: Driver) -> None:
        self.refuses = False
        self.evicted: list[str] = []
        self.nominated: list[str] = []
        self.cleared: list[str] = []
        self.on_eviction: Callable[[Pod, Pod], None] = lambda _preemptor, _victim: None
        self.while_evicting: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)
        self._driver = driver

    async def evict(
        self,
        nominations: Sequence[Nomination],
        *,
        is_needed: Callable[[], bool],
        is_ending: Callable[[EligiblePod], bool],
    ) -> tuple[EvictionOutcome, list[EligiblePod]]:
        """Let the victims begin to end."""
        self.nominated += [f"{each.pod.metadata.name}@{each.node}" for each in nominations]
        victims = [(each.pod, victim) for each in nominations for victim in each.victims]
        await self.while_evicting()
        if self.refuses:
            return EvictionOutcome.REFUSED, []
        for preemptor, each in victims:
            if not is_needed():
                return EvictionOutcome.GONE, []
            name = each.pod.metadata.name
            running = self._driver.running.get(name)
            if running is None or running.uid != each.pod.uid or is_ending(each):
                continue
            self.on_eviction(preemptor, running)
            self.evicted.append(name)
            self._driver.begin_to_end(name)
        return EvictionOutcome.EVICTED, [victim for _, victim in victims]

    async def clear_nomination(self, pod: Pod, _node: str) -> bool:
        """Note that the nomination is removed."""
        self.cleared.append(pod.metadata.name)
        return True


class CountingChooser(Chooser):
    """Counts choices."""

    asked = 0

    def choose(self, pod: Pod, **more: Any) -> Any:
        """Count, and choose."""
        self.asked += 1
        return super().choose(pod, **more)


class Scene:
    """A cluster with a scheduler that preempts.

    Attributes:
        clock: the scheduler's clock.
        state: what the scheduler knows.
        driver: its queue and cycle.
        evictor: carries out its evictions.
        budgets: the PodDisruptionBudgets.
        chooser: chooses which pods to preempt.
        preemptor: the controller.
    """

    def __init__(
        self,
        *nodes: str,
        cards: int = 1,
        clock: Clock | None = None,
        driver: Driver | None = None,
        unix: Callable[[], float] = lambda: NOW,
        **settings: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.driver = driver or Driver(state(*nodes, cards=cards, clock=self.clock))
        self.state = self.driver.state
        for name in nodes:
            self.state.set_lease(lease(name, seconds=10**6))  # the agents live, however far a test moves the clock
        self.evictor = FaultyEvictor(self.driver)
        self.budgets = DisruptionBudgets()
        chosen = PreemptionSettings(**settings)
        rules = Eligibility(self.state, budgets=self.budgets, settings=chosen, unix=unix)
        self.chooser = CountingChooser(self.state, rules)
        self.preemptor = Preemptor(
            self.chooser,
            cast("Evictor", self.evictor),
            gang_chooser=GangChooser(self.chooser, self.driver.cycle),
            waiting=waiting_pod.of_queue(self.state),
            still_waits=lambda pod: self.state.queue.get(pod.uid) is not None,
            metrics=Metrics(),
            settings=chosen,
            clock=self.clock,
            is_trusted=lambda: True,
        )

    def run(self, *names: str, memory: int = 1000, priority: int = 0, **more: Any) -> None:
        """Let pods run: `pod@node` on its first card."""
        for each in names:
            name, _, node = each.partition("@")
            running = allocated(name, node=node, memory=memory, priority=priority, **more)
            self.driver.running[name] = running
            self.state.set_pod(running)

    def guard(self, *budgets: PodDisruptionBudget) -> None:
        """Create budgets."""
        for each in budgets:
            self.budgets.set(each)

    async def look(self) -> list[str]:
        """Place what fits, and let the controller look once; return what could be placed then."""
        await self.driver.settle()
        await self.preemptor.look()
        await rest()
        return await self.driver.settle()

    def hold_of(self, name: str) -> str:
        """Return the node that is held for a pod; empty if none is."""
        hold = self.state.holds.of(f"uid-{name}")
        return hold.node if hold is not None else ""


async def rest() -> None:
    """Let the tasks of the controller go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)
