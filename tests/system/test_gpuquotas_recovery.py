"""Whenever the leader is killed, the next one counts the same pods against each GpuQuota, and grants no more."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lab.fleet import SIMULATED_NODES
from tests.support.depth import repetitions
from tests.system.conftest import Namespace, pod
from tests.system.support.gpuquotas import set_quota
from tests.system.test_recovery import ended, scheduler, settled, start_scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout
    from lab.processes import Daemon

__all__ = ["scheduler"]  # a fixture
pytestmark = pytest.mark.apiserver

MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"
POD_MIB = 3000
ALLOWED = 6
"""Pods for which the quota has room."""
WANTED = 10
ROUNDS = repetitions(1, 5)
DELAYS_S = (0.05, 0.3, 0.15, 0.6, 0.0)
"""When the leader is killed after the first pod of a round was created: among its decisions, and after them."""


def slice_(name: str) -> dict[str, Any]:
    """Return a pod that uses a sixth of the quota."""
    return pod(name, node=SIMULATED_NODES[0], gpu=1, gpumem=POD_MIB)


def kill(scheduler: Daemon) -> None:
    """Kill the scheduler without any notice."""
    assert scheduler.pid is not None
    os.kill(scheduler.pid, signal.SIGKILL)


def counted(namespace: Namespace, pods: int, *, generation: int) -> None:
    """Wait until the status of the quota is about this spec and has the sums of this many pods."""
    sums = {MEMORY: pods * POD_MIB, CARDS: pods}

    def equal(quotas: Mapping[str, Any]) -> bool:
        status = quotas["team"].get("status", {})
        return (status.get("observedGeneration"), status.get("used"), status.get("pods")) == (generation, sums, pods)

    namespace.until(equal, "gpuquotas", what=f"a status of {pods} pods at generation {generation}")


def limit(namespace: Namespace, *, cards: int) -> int:
    """Write the quota, the cards of which are not what limits it; return the generation of its spec."""
    set_quota(namespace, "team", total={"limits": {MEMORY: ALLOWED * POD_MIB, CARDS: cards}, "maxPods": 20})
    generation: int = namespace.get("gpuquota", "team")["metadata"]["generation"]
    return generation


def test_quota_sums_are_right_after_the_leader_was_killed(
    tranche: Layout, scheduler: Daemon, namespace: Namespace
) -> None:
    """Killed while it fills the quota: pods bound before it died count once, and the rest of the quota is still used.

    Each round changes the quota while no scheduler runs, so that its status can only be the new leader's.
    """
    cards = 30
    counted(namespace, 0, generation=limit(namespace, cards=cards))
    for round_ in range(ROUNDS):
        killer = threading.Timer(DELAYS_S[round_], kill, (scheduler,))
        killer.start()
        namespace.create(*(slice_(f"r{round_}-{number}") for number in range(WANTED)))
        killer.join()
        ended(tranche, scheduler)
        cards += 1
        generation = limit(namespace, cards=cards)
        start_scheduler(tranche)

        placed = namespace.placed(ALLOWED)
        counted(namespace, ALLOWED, generation=generation)
        bound = {each["metadata"]["name"] for each in placed}
        for name in sorted({each["metadata"]["name"] for each in namespace.pods()} - bound):
            assert "ResourceQuotaNotFit" in namespace.unplaced(name)
        namespace.placed(ALLOWED)
        settled(tranche)

        # At rest: the new leader counts what is there, before anything changes.
        kill(scheduler)
        ended(tranche, scheduler)
        cards += 1
        generation = limit(namespace, cards=cards)
        start_scheduler(tranche)
        counted(namespace, ALLOWED, generation=generation)

        namespace.empty()
        counted(namespace, 0, generation=generation)
