"""Whatever happens to a process of ours, every pod is bound once and no card is given out twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lab import components, control_plane, ports, wait
from lab.errors import LabError
from lab.fleet import SIMULATED_NODES
from lab.layout import Port
from lab.processes import Daemon
from tests.system import audit, truth
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(500)]
ROUNDS = 10
PODS = 200
TAKEOVER_S = 60.0
READY_AGAIN = "deciding: "


@pytest.fixture
def scheduler(tranche: Layout) -> Iterator[Daemon]:
    """The scheduler's process; it runs again when the test is over."""
    yield Daemon(tranche, "scheduler")
    start_scheduler(tranche)
    settled(tranche)


def start_scheduler(layout: Layout) -> None:
    """Start the scheduler unless it runs."""
    components.start(layout, components.component(layout, "scheduler"))


def ended(layout: Layout, scheduler: Daemon) -> None:
    """Wait until a killed scheduler is gone and its port free: its threads outlive its main thread by a moment."""
    wait.until(
        lambda: not scheduler.is_running and not ports.taken(layout, (Port.SCHEDULER,)),
        what="the scheduler's end",
        timeout_s=PATIENCE_S,
    )


def settled(layout: Layout) -> None:
    """Wait until the scheduler's ledger equals a recount of the API server's objects."""

    def equal() -> bool:
        try:
            return truth.scheduler_counts(layout) == truth.by_card(truth.recount(layout))
        except (OSError, KeyError):
            return False

    wait.until(equal, what="the scheduler's ledger equal to a recount", timeout_s=PATIENCE_S)


def says(daemon: Daemon, text: str, *, since: int) -> bool:
    """Whether a process has logged `text` after byte `since` of its log."""
    with daemon.log.open("rb") as log:
        log.seek(since)
        return text.encode() in log.read()


def many(count: int) -> list[dict[str, Any]]:
    """Answer manifests of pods, ten of which fill a card, on the simulated nodes: these start any number at once."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*SIMULATED_NODES]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    manifests = [pod(f"p{index:03}", gpu=1, gpumem=8000, gpucores=10) for index in range(count)]
    for manifest in manifests:
        manifest["spec"]["affinity"] = {"nodeAffinity": required}
    return manifests


def bound_once(layout: Layout, namespace: Namespace, count: int) -> None:
    """Check in the audit log that each of `count` pods was bound, and by one write.

    A Binding whose sender was killed meanwhile may have taken effect though its answer counts as an error.
    """
    attempts = audit.attempts(layout, namespace=namespace.name)
    taken = truth.bindings([each for each in attempts if audit.code(each) < 300])
    interrupted = truth.bindings([each for each in attempts if audit.code(each) >= 499])
    assert set(taken.values()) <= {1}
    assert len(taken.keys() | interrupted.keys()) == count


def test_killed_at_random_ten_times(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """SIGKILL at random while 200 pods are created: each bound once, nothing over capacity, the ledger is a recount."""
    draw = random.Random(20261121)  # noqa: S311 -- when to kill
    manifests = many(PODS)
    share = PODS // (ROUNDS + 1)
    for round_ in range(ROUNDS):
        pid = scheduler.pid
        assert pid is not None
        # Sometimes before the first decision, sometimes in the middle of Bindings, sometimes after the last.
        killer = threading.Timer(draw.uniform(0.0, 0.6), os.kill, (pid, signal.SIGKILL))
        killer.start()
        namespace.create(*manifests[round_ * share : (round_ + 1) * share])
        killer.join()
        ended(tranche, scheduler)
        began = scheduler.log.stat().st_size
        start_scheduler(tranche)
        wait.until(
            lambda began=began: says(scheduler, READY_AGAIN, since=began),  # type: ignore[misc]
            what="a new term",
            timeout_s=TAKEOVER_S,
            daemons=[scheduler],
        )
    namespace.create(*manifests[ROUNDS * share :])
    namespace.placed(PODS)
    bound_once(tranche, namespace, PODS)
    settled(tranche)


def test_a_stopped_leader_comes_back_too_late(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """Stopped past its Lease while another takes over, then continued: it leads no more, each pod is bound once."""
    pid = scheduler.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began = scheduler.log.stat().st_size
    second = components.start_replica(
        tranche,
        components.component(tranche, "scheduler"),
        "--port",
        str(tranche.port(Port.SCHEDULER) + 50),
        name="scheduler-second",
    )
    try:
        wait.until(
            lambda: says(second, READY_AGAIN, since=0), what="a second leader", timeout_s=TAKEOVER_S, daemons=[second]
        )
        namespace.create(*many(20))
        namespace.placed(20)
        os.kill(pid, signal.SIGCONT)
        wait.until(
            lambda: says(scheduler, "leading no more", since=began),
            what="the first one's insight",
            timeout_s=PATIENCE_S,
            daemons=[scheduler],
        )
    finally:
        os.kill(pid, signal.SIGCONT)
        second.stop()
    bound_once(tranche, namespace, 20)
    wait.until(
        lambda: says(scheduler, READY_AGAIN, since=began),
        what="the first one leading again",
        timeout_s=TAKEOVER_S,
        daemons=[scheduler],
    )
    settled(tranche)


def test_an_orderly_end_hands_over_at_once(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """SIGTERM lets the writes under way end and frees the Lease: the next one waits for nobody."""
    namespace.create(*many(20))
    scheduler.stop(grace_s=20)
    began = scheduler.log.stat().st_size
    start_scheduler(tranche)
    wait.until(
        lambda: says(scheduler, "the last term handed over in order", since=began),
        what="a term that waits for nobody",
        timeout_s=TAKEOVER_S,
        daemons=[scheduler],
    )
    namespace.placed(20)
    bound_once(tranche, namespace, 20)


def test_an_api_server_that_is_away_changes_nothing(tranche: Layout, namespace: Namespace) -> None:
    """Away for 30 s, longer than any Lease: no process of ours ends, nothing is placed twice, work goes on."""
    names = ("scheduler", "webhook", "agent")
    pids = {name: Daemon(tranche, name).pid for name in names}
    namespace.create(*many(5))
    Daemon(tranche, "kube-apiserver").stop()
    time.sleep(30)  # the outage itself, not a wait for something
    control_plane.start_apiserver(tranche)

    def created() -> bool:
        try:
            namespace.create(pod("afterwards", gpu=1, gpumem=100))
        except LabError:
            return False  # the first requests may still meet the restart
        return True

    wait.until(created, what="a pod created after the restart", timeout_s=PATIENCE_S)
    namespace.placed(6)
    assert {name: Daemon(tranche, name).pid for name in names} == pids
    bound_once(tranche, namespace, 6)
    settled(tranche)


def test_a_pod_that_takes_a_name_again_starts_anew(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """Deleted while no scheduler runs and created again under its name: the old one's share is nobody's."""
    scheduler.stop()
    namespace.create(pod("same", gpu=1, gpumem=100))
    first = namespace.pod("same")["metadata"]["uid"]
    namespace.kubectl("delete", "pod", "same")
    namespace.create(pod("same", gpu=1, gpumem=200))
    start_scheduler(tranche)
    (placed,) = namespace.placed(1)
    assert placed["metadata"]["uid"] != first
    settled(tranche)
