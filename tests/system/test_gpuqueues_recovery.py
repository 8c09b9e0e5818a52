"""Whenever the leader is killed, the next one charges the same queues for the same pods."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import QUEUE
from lab import wait
from lab.fleet import SIMULATED_NODES
from lab.processes import Daemon
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpuqueues, scheduler_api
from tests.system.support.gpuqueues import labels, payer, set_queue
from tests.system.test_recovery import READY_AGAIN, TAKEOVER_S, ended, says, scheduler, settled, start_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

__all__ = ["scheduler"]  # a fixture
pytestmark = pytest.mark.apiserver

WEIGHTS = {"light": 1, "middle": 2, "heavy": 4}
ROUNDS = repetitions(1, 3)
PODS = 12
"""Of each round; a third of them for each queue."""
LEAVING = 3

Shares = dict[str, tuple[float, float]]
"""The share and the number of pods of each queue."""


@pytest.fixture
def queues(tranche: Layout, namespace: Namespace) -> Iterator[None]:
    """Three queues."""
    for name, weight in WEIGHTS.items():
        set_queue(tranche, name, weight=weight)
    with gpuqueues.deleted(tranche, namespace):
        yield


def slices(first: int, count: int) -> dict[str, dict[str, Any]]:
    """Return equal pods by name, in turn for each queue."""
    names = {f"p{number:02}": [*WEIGHTS][number % len(WEIGHTS)] for number in range(first, first + count)}
    return {
        name: pod(name, node=SIMULATED_NODES[0], labels=labels(queue), gpu=1, gpumem=8000, gpucores=10)
        for name, queue in names.items()
    }


def shares(layout: Layout) -> Shares:
    """Return the shares in the metrics of the leader; empty before it knows all queues."""
    try:
        samples = scheduler_api.metrics(scheduler_api.url(layout))
    except OSError:
        return {}
    share, running = (
        {sample.labels["queue"]: sample.value for sample in samples[name]}
        for name in ("tranche_queue_share_ratio", "tranche_queue_running_pods")
    )
    return {name: (share[name], running[name]) for name in share} if share.keys() == WEIGHTS.keys() else {}


def restart_killed(layout: Layout, killed: Daemon) -> Shares:
    """Start a scheduler that was killed, and return the first shares of its term."""
    ended(layout, killed)
    began = killed.log.stat().st_size
    start_scheduler(layout)
    wait.until(
        lambda: says(killed, READY_AGAIN, since=began), what="a new term", timeout_s=TAKEOVER_S, daemons=[killed]
    )
    return wait.until(lambda: shares(layout), what="the shares of the new term", timeout_s=PATIENCE_S)


def kill(scheduler: Daemon) -> None:
    """Kill the scheduler without any notice."""
    assert scheduler.pid is not None
    os.kill(scheduler.pid, signal.SIGKILL)


@pytest.mark.usefixtures("queues")
def test_shares_are_the_same_after_the_leader_was_killed(
    tranche: Layout, scheduler: Daemon, namespace: Namespace
) -> None:
    """Killed while pods come, leave and change their label, and killed at rest: `charged-to` decides, no label does."""
    chance = random.Random(23)  # noqa: S311 -- when to kill, and which pods leave
    payers: dict[str, str] = {}
    for round_ in range(ROUNDS):
        leaving = chance.sample(sorted(payers), min(LEAVING, len(payers)))
        flipped = chance.sample(sorted(payers.keys() - leaving), min(LEAVING, len(payers) - len(leaving)))
        made = slices(round_ * PODS, PODS)
        killer = threading.Timer(chance.uniform(0.0, 0.8), kill, (scheduler,))
        killer.start()
        namespace.create(*made.values())
        for name in flipped:
            namespace.patch("pod", name, {"metadata": {"labels": {QUEUE: f"{chance.choice([*WEIGHTS])}"}}})
        if leaving:
            namespace.delete("pods", *leaving, grace_s=1)
        killer.join()
        restart_killed(tranche, scheduler)

        payers = {name: queue for name, queue in payers.items() if name not in leaving}
        payers |= {name: each["metadata"]["labels"][QUEUE] for name, each in made.items()}
        placed = namespace.placed(len(payers))
        assert {each["metadata"]["name"]: payer(each) for each in placed} == payers
        settled(tranche)
        before, running = shares(tranche), Counter(payers.values())
        assert {name: count for name, (_, count) in before.items()} == running
        (of_one_pod,) = {round(share / count, 9) for share, count in before.values()}
        assert of_one_pod > 0

        kill(scheduler)
        assert restart_killed(tranche, scheduler) == before
