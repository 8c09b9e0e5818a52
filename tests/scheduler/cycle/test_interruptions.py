"""Reservations are valid whatever changes between the steps of a scheduling cycle."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.pacing import Pacer
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, allocated, node, pod, state, status
from tests.scheduler.support.preferring import PREFERRED, anyway, in_, near
from tests.scheduler.support.scheduling import schedule

NODES = [f"n{number:02}" for number in range(70)]
APART = {
    "labels": {"app": "x"},
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
            ]
        }
    },
}
TWO = {
    "containers": [
        {"name": name, "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}}}
        for name in ("one", "two")
    ]
}
PREFERRING = {
    "labels": {"app": "x"},
    "affinity": {"nodeAffinity": {PREFERRED: [in_("zone", "a")]}, "podAffinity": {PREFERRED: [near("zone", app="x")]}},
    "topologySpreadConstraints": [anyway("kubernetes.io/hostname")],
}
KINDS: list[dict[str, Any]] = [
    {"memory": 300},
    {"memory": 300, **APART},
    TWO,
    {**TWO, **APART},
    {"memory": 300, "nodeSelector": {"zone": "a"}},
    {"memory": 300, **PREFERRING},
    {**TWO, **PREFERRING},
    {"memory": 300, **PREFERRING, "affinity": {**PREFERRING["affinity"], **APART["affinity"]}},
]


def happen(made: ClusterState, chance: random.Random, serial: int) -> None:
    """Make one random change of one node."""
    name = chance.choice(NODES)
    match chance.choice(("fill", "label", "close", "drop", "ill")):
        case "fill":
            made.set_pod(allocated(f"r{serial}", node=name, memory=chance.choice((300, 1000)), labels={"app": "x"}))
        case "label":
            labels = {"zone": chance.choice("ab"), "kubernetes.io/hostname": name}
            made.set_node(node(name, metadata={"name": name, "labels": labels}))
        case "close":
            made.set_pod(pod(f"s{serial}", memory=1, node=name, phase="Running"))
        case "drop":
            made.drop_node(node(name))
        case "ill":
            made.agent_reports.set(status(name, healthy=False))


@given(st.integers(0, 2**32), st.sampled_from(KINDS))
def test_a_reservation_is_valid_after_changes_between_the_steps(seed: int, kind: dict[str, Any]) -> None:
    """The node takes the pod when it is reserved, and the reservation exceeds the capacity of no card."""
    chance = random.Random(seed)  # noqa: S311 -- a test
    made = state(*NODES, clock=Clock(), cards=1 if "containers" in kind else 2)
    pending = pod("asks", **kind)
    steps, serial = schedule(made, pending), 0
    while True:
        before = {reservation.uid for reservation in made.ledger.reservations()}
        try:
            next(steps)
        except StopIteration as end:
            decision = end.value
            break
        for _ in range(chance.randint(0, 4)):
            happen(made, chance, serial := serial + 1)
    if not isinstance(decision, Scheduled):
        assert pending.uid not in {reservation.uid for reservation in made.ledger.reservations()}
        return
    assert before | {pending.uid} == {reservation.uid for reservation in made.ledger.reservations()}
    assert decision.node not in made.closed_nodes.now()
    made.ledger.release(pending.uid)
    made.ledger.check(decision.node, decision.charges)
    made.node_cache.remove_pod(pending.uid)
    assert finish(made.node_filter.filter(pending, (decision.node,))).fitting == [decision.node]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_another_node_in_each_step_keep_no_pod_from_its_own(kind: dict[str, Any]) -> None:
    """The chosen node alone is looked at again: all of them are not evaluated a second time."""
    counts = []
    for changing in (False, True):
        made = state(*NODES, cards=2)
        made.set_node(node("n00", metadata={"name": "n00", "labels": {"zone": "a", "kubernetes.io/hostname": "n00"}}))
        count = 0
        for count, _ in enumerate(schedule(made, pod("asks", **kind)), start=1):
            if changing:
                labels = {"zone": "ab"[count % 2], "kubernetes.io/hostname": NODES[-1]}
                made.set_node(node(NODES[-1], metadata={"name": NODES[-1], "labels": labels}))
        assert made.ledger.reservation("uid-asks") is not None
        counts.append(count)
    assert counts[1] <= counts[0] + 1


@pytest.mark.parametrize("change", ["gone", "other"])
async def test_a_pod_that_changes_during_a_decision_is_not_placed(change: str) -> None:
    """Nothing is reserved for a pod that was deleted, or for its former requirements."""
    made = state(*NODES)
    pending = pod("asks", memory=300, **APART)
    made.set_pod(pending)
    await made.queue.pop()
    steps = schedule(made, pending)
    next(steps)
    if change == "gone":
        made.drop_pod(pending)
    else:
        made.set_pod(pod("asks", memory=400, **APART), pending)
    assert finish(steps) is None
    assert not list(made.ledger.reservations())


@pytest.mark.parametrize("kind", KINDS)
def test_each_step_evaluates_a_few_nodes_only(kind: dict[str, Any]) -> None:
    """A cycle over many nodes can be interrupted often, whether or not a node takes the pod."""
    made = state(*(f"n{number}" for number in range(500)), cards=1)
    pending = pod("asks", **{**kind, "nodeSelector": {"zone": "nowhere"}} if "nodeSelector" in kind else kind)
    steps = schedule(made, pending)
    assert sum(1 for _ in steps) >= 500 // 32


async def test_a_pacer_lets_other_tasks_run_when_a_slice_is_used_up() -> None:
    """With slices of length 0, other tasks run after each step."""
    seen: list[str] = []

    def work() -> Any:
        for index in range(3):
            seen.append(f"step {index}")
            yield
        return "done"

    async def other() -> None:
        while True:
            seen.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await Pacer(slice_seconds=0.0).run(work()) == "done"
    task.cancel()
    assert seen == ["step 0", "other", "step 1", "other", "step 2", "other"]
