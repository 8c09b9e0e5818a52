"""The short way and the long way lead to one decision, whatever happened before."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cycle import Chosen, Waiting, decide, undo
from scheduler.objects import Pod
from scheduler.state import State
from tests.scheduler.builders import Clock, allocated, lease, node, pod, state, status

NODES = [f"n{number}" for number in range(5)]
SPECS: list[dict[str, Any]] = [
    {"memory": 300},
    {"memory": 300},
    {"memory": 700},
    {"memory": 100, "nodeSelector": {"zone": "a"}},
    {"memory": 100, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    {"memory": 200, "annotations": {"hami.io/node-scheduler-policy": "spread"}},
    {"memory": 5000},
]


class Twins:
    """Two schedulers to which the same happens; the second knows no short way."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.clock = Clock()
        self.states = [state(clock=self.clock), state(clock=self.clock)]
        self.states[1].shortcut.find = lambda *_: None  # type: ignore[method-assign]
        self.running: list[Pod] = []
        self.count = 0

    def each(self, act: str, *arguments: object) -> None:
        """Let the same happen to both."""
        for each in self.states:
            getattr(each, act)(*arguments)

    def step(self) -> None:
        """Let one thing happen."""
        chance, name = self.chance, self.chance.choice(NODES)
        match chance.choices(
            ("node", "cards", "beat", "gone", "late", "stray", "end", "pod"), (2, 2, 2, 1, 1, 1, 3, 9)
        )[0]:
            case "node":
                self.each("set_node", self.node(name))
            case "cards":
                self.each("set_status", status(name, cards=chance.randint(1, 3), healthy=chance.random() < 0.9))
            case "beat":
                self.each("set_lease", lease(name, renewed=f"2026-01-01T00:00:{chance.random()}Z"))
            case "gone":
                self.each("drop_node", node(name))
            case "late":
                self.clock.now += chance.choice((10, 70))
            case "stray":
                self.arrive(pod(f"stray-{self.next()}", memory=10, node=name, phase="Running"))
            case "end":
                if self.running:
                    self.each("drop_pod", self.running.pop(chance.randrange(len(self.running))))
            case _:
                self.decide()

    def node(self, name: str) -> Any:
        """Answer a node with some label, taint and room."""
        chance = self.chance
        taints = [{"key": "gpu", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": str(chance.choice((2, 110)))}
        if chance.random() < 0.2:
            allocatable["nvidia.com/gpu"] = str(chance.randint(1, 3))
        return node(
            name,
            metadata={"name": name, "labels": {"zone": chance.choice("ab")}},
            spec={"taints": taints, "unschedulable": chance.random() < 0.1},
            status={"allocatable": allocatable},
        )

    def next(self) -> int:
        """Answer a number that was not used before."""
        self.count += 1
        return self.count

    def arrive(self, made: Pod) -> None:
        """Let a pod run."""
        self.each("set_pod", made)
        self.running.append(made)

    def decide(self) -> None:
        """Decide in both ways; what was decided runs then, or is given back."""
        asks = pod(f"asks-{self.next()}", **self.chance.choice(SPECS))
        short, long = (decide(each, asks) for each in self.states)
        assert type(short) is type(long)
        if isinstance(short, Waiting):
            assert isinstance(long, Waiting)
            assert (short.note, short.cures, short.reasons) == (long.note, long.cures, long.reasons)
            return
        assert isinstance(long, Chosen)
        assert (short.node, short.allocation, short.note) == (long.node, long.allocation, long.note)
        if self.chance.random() < 0.3:
            for each in self.states:
                undo(each, asks)
            return
        assert short.allocation is not None
        (share,) = short.allocation.containers["main"]
        self.arrive(allocated(asks.metadata.name, node=short.node, memory=share.memory_mib, card=share.index))


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_short_way_is_the_long_way(seed: int, steps: int) -> None:
    """The same node, cards and words after any history of nodes, agents, strangers and pods."""
    twins = Twins(seed)
    for _ in range(steps):
        twins.step()


@pytest.mark.parametrize("is_new", [True, False])
def test_why_no_node_fits_is_said_anew_when_anything_changed(is_new: bool) -> None:  # noqa: FBT001
    """What is remembered of a hopeless pod's like is no older than the last change."""
    made: State = state("n1")
    first = decide(made, pod("a", memory=5000))
    assert isinstance(first, Waiting)
    if is_new:
        made.set_node(node("n2"))
    again = decide(made, pod("b", memory=5000))
    assert isinstance(again, Waiting)
    assert ("2 nodes do not meet" in again.note) is is_new
