"""Preemption over time, with controllers that create each victim again: it ends, and it keeps to its rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from allocation.names import PREEMPTION_PROTECTION
from scheduler.holds import PREFIX
from scheduler.queue.queueing_hints import ClusterEvent
from tests.scheduler.preemption.test_choice import budget
from tests.scheduler.support.builders import pod
from tests.scheduler.support.preemption_scene import Scene, rest

if TYPE_CHECKING:
    from scheduler.objects import Pod

NODES, CARDS, MEMORY = ("a", "b"), 2, 1000


class PreemptionMachine(RuleBasedStateMachine):
    """A small cluster whose pods come and go.

    A pod's name ends with the number of times that its controller has created it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.scene = Scene(*NODES, cards=CARDS, longest_protection_seconds=7200)
        self.scene.guard(budget("db", allowed=1, app="db"))
        self.allowed = 1
        self.waiting: dict[str, Pod] = {}
        self.evictions: list[tuple[Pod, Pod]] = []
        self.count = 0
        self.wrong: list[str] = []
        self.scene.evictor.on_eviction = self._evicted

    # ---- what happens ----------------------------------------------------------------------------------------------

    @initialize(priorities=st.lists(st.integers(0, 2), max_size=len(NODES) * CARDS))
    def fill(self, priorities: list[int]) -> None:
        """Some cards are full from the beginning."""
        for priority in priorities:
            self.create(1000, 1, priority, "plain")

    @rule(
        memory=st.sampled_from((500, 700, 1000)),
        cards=st.integers(1, CARDS),
        priority=st.integers(0, 3),
        kind=st.sampled_from(("plain", "plain", "protected", "guarded", "never")),
    )
    def create(self, memory: int, cards: int, priority: int, kind: str) -> None:
        """A pod is created."""
        self.count += 1
        limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory)}
        fields: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}]}
        if kind == "never":
            fields["preemptionPolicy"] = "Never"
        self._add(
            pod(
                f"p{self.count}",
                priority=priority,
                annotations={PREEMPTION_PROTECTION: "2h"} if kind == "protected" else {},
                labels={"app": "db"} if kind == "guarded" else {},
                **fields,
            )
        )
        self._run()

    @precondition(lambda self: self.scene.driver.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A running pod ends, whether it was evicted or not."""
        self._end(data.draw(st.sampled_from(sorted(self.scene.driver.running))))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """A pod that waits is deleted."""
        name = data.draw(st.sampled_from(sorted(self.waiting)))
        self.scene.state.drop_pod(self.waiting.pop(name))

    @rule(refuses=st.booleans())
    def refuse(self, *, refuses: bool) -> None:
        """The API server refuses Evictions from now on, or not any more."""
        self.scene.evictor.refuses = refuses

    @rule(allowed=st.integers(0, 2))
    def allow(self, allowed: int) -> None:
        """The budget allows other disruptions."""
        self.allowed = allowed
        self.scene.guard(budget("db", allowed=allowed, app="db"))

    @rule(seconds=st.sampled_from((0.0, 1.0, 10.0, 100.0)))
    def look(self, seconds: float) -> None:
        """Time goes by, and the scheduler and the controller do what they can."""
        self.scene.clock.now += seconds
        self._run()

    # ---- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def no_card_is_used_beyond_its_capacity_by_pods_that_run(self) -> None:
        """What is held may be beyond it, what runs may not."""
        used: Counter[tuple[str, str]] = Counter()
        for each in self.scene.state.ledger.reservations():
            if not each.uid.startswith(PREFIX):
                for charge in each.charges:
                    used[each.node, charge.uuid] += charge.memory_mib
        assert all(amount <= MEMORY for amount in used.values()), used

    @invariant()
    def only_pods_that_may_be_evicted_are(self) -> None:
        """Of strictly lower priority, not protected, within their budget, and never twice."""
        assert not self.wrong

    @invariant()
    def cards_are_held_for_pods_that_wait_only(self) -> None:
        """Nothing is left behind."""
        waiting = {each.uid for each in self.waiting.values()}
        held = {each.uid for each in self.scene.state.ledger.reservations() if each.uid.startswith(PREFIX)}
        assert {hold.uid for hold in self.scene.state.holds} <= waiting
        assert held == {PREFIX + hold.uid for hold in self.scene.state.holds}

    def teardown(self) -> None:
        """In the end the evictions end, although each victim is created again."""
        with self.runner:
            self._check_that_evictions_end()

    def _check_that_evictions_end(self) -> None:
        self.scene.evictor.refuses = False
        quiet = before = 0
        for _ in range(400):
            self.scene.clock.now += 20
            self._run()
            for name, running in tuple(self.scene.driver.running.items()):
                if running.metadata.deletion_timestamp:
                    self._end(name)
            quiet = quiet + 1 if len(self.evictions) == before else 0
            before = len(self.evictions)
            if quiet == 20:
                break
        assert quiet == 20, [(str(high), str(low)) for high, low in self.evictions[-10:]]

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        async def once() -> None:
            self.scene.state.queue.notify(ClusterEvent.POD_REMOVED)
            await self.scene.look()
            await rest()

        self.runner.run(once())
        for name in self.scene.driver.order:
            self.waiting.pop(name, None)

    def _evicted(self, preemptor: Pod, victim: Pod) -> None:
        """Check a victim, and let its controller create it again."""
        self.evictions.append((preemptor, victim))
        is_guarded = bool(victim.metadata.labels)
        rules = {
            "its priority is not lower": victim.spec.priority >= preemptor.spec.priority,
            "the preemptor preempts no pods": preemptor.spec.preemption_policy == "Never",
            "it is protected": PREEMPTION_PROTECTION in victim.metadata.annotations,
            "it was being deleted": bool(victim.metadata.deletion_timestamp),
            "its budget allows no disruption": is_guarded and not self.allowed,
        }
        self.wrong += [f"{victim} for {preemptor}: {what}" for what, is_broken in rules.items() if is_broken]
        if is_guarded:
            self.allowed -= 1
            self.scene.guard(budget("db", allowed=max(self.allowed, 0), app="db"))
        self.count += 1
        name = f"p{self.count}"
        annotations = {key: value for key, value in victim.metadata.annotations.items() if key == PREEMPTION_PROTECTION}
        meta = msgspec.structs.replace(victim.metadata, name=name, uid=f"uid-{name}", annotations=annotations)
        spec = msgspec.structs.replace(victim.spec, node_name="")
        status = msgspec.structs.replace(victim.status, phase="Pending")
        self._add(msgspec.structs.replace(victim, metadata=meta, spec=spec, status=status))

    def _add(self, made: Pod) -> None:
        self.waiting[made.metadata.name] = made
        self.scene.driver.add(made)

    def _end(self, name: str) -> None:
        if not self.scene.driver.running[name].metadata.deletion_timestamp:
            self.scene.driver.begin_to_end(name)
        self.scene.driver.end(name)


PreemptionMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestPreemption = PreemptionMachine.TestCase
