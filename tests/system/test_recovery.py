"""Recovery: whatever happens to a process, every pod is bound once and no card is allocated twice."""

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
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(2, 10)
PODS = 20 * ROUNDS
OUTAGE_S = 8.0
"""How long etcd or the API server is away: longer than the Lease of the lab's scheduler."""
TAKEOVER_S = 60.0
READY_AGAIN = "scheduling: "


@pytest.fixture
def scheduler(tranche: Layout) -> Iterator[Daemon]:
    """The scheduler's process; it is started again after the test."""
    yield Daemon(tranche, "scheduler")
    start_scheduler(tranche)
    settled(tranche)


def start_scheduler(layout: Layout) -> None:
    """Start the scheduler unless it runs."""
    components.start(layout, components.component(layout, "scheduler"))


def ended(layout: Layout, scheduler: Daemon) -> None:
    """Wait until a killed scheduler is gone and its port free; its threads end shortly after its main thread."""
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
    """Return whether a process has logged `text` after byte `since` of its log."""
    with daemon.log.open("rb") as log:
        log.seek(since)
        return text.encode() in log.read()


def many(count: int) -> list[dict[str, Any]]:
    """Return manifests of pods for the simulated nodes, which can start any number at once; ten pods fill a card."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*SIMULATED_NODES]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    manifests = [pod(f"p{index:03}", gpu=1, gpumem=8000, gpucores=10) for index in range(count)]
    for manifest in manifests:
        manifest["spec"]["affinity"] = {"nodeAffinity": required}
    return manifests


def bound_once(layout: Layout, namespace: Namespace, count: int) -> None:
    """Check in the audit log that each of `count` pods was bound by exactly one write.

    A Binding whose sender was killed may have been applied although the log has an error status for it.
    """
    attempts = audit.attempts(layout, namespace=namespace.name)
    accepted = truth.bindings([each for each in attempts if audit.code(each) < 300])
    interrupted = truth.bindings([each for each in attempts if audit.code(each) >= 499])
    assert set(accepted.values()) <= {1}
    assert len(accepted.keys() | interrupted.keys()) == count


def test_random_kills_of_the_scheduler_lose_nothing(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """While pods are created: each is bound once, no card is over capacity, and the ledger is correct."""
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


def test_paused_leader_loses_its_term(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """A leader is paused for longer than its Lease while another takes over; when it continues, it no longer leads."""
    pid = scheduler.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    began = scheduler.log.stat().st_size
    second = components.start_replica(
        tranche,
        components.component(tranche, "scheduler"),
        "--port",
        str(tranche.port(Port.SCHEDULER) + 50),
        "--namespace-api-port",
        str(tranche.port(Port.SCHEDULER_API) + 50),
        "--ui-enabled=false",
        "--ui-exposed=false",
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
            lambda: says(scheduler, "stopped leading", since=began),
            what="the end of the first one's term",
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


def test_sigterm_hands_leadership_over_at_once(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """On SIGTERM the scheduler finishes its writes and releases the Lease, so the next leader does not wait."""
    namespace.create(*many(20))
    scheduler.stop(grace_s=20)
    began = scheduler.log.stat().st_size
    start_scheduler(tranche)
    wait.until(
        lambda: says(scheduler, "the previous term handed over", since=began),
        what="a term that does not wait",
        timeout_s=TAKEOVER_S,
        daemons=[scheduler],
    )
    namespace.placed(20)
    bound_once(tranche, namespace, 20)


def test_api_server_outage_changes_nothing(tranche: Layout, namespace: Namespace) -> None:
    """After an outage no process has exited, no pod is placed twice, and work continues."""
    names = ("scheduler", "webhook", "agent")
    pids = {name: Daemon(tranche, name).pid for name in names}
    namespace.create(*many(5))
    Daemon(tranche, "kube-apiserver").stop()
    time.sleep(OUTAGE_S)
    control_plane.start_apiserver(tranche)

    wait.until(lambda: writable(namespace), what="a pod created after the restart", timeout_s=PATIENCE_S)
    namespace.placed(6)
    assert {name: Daemon(tranche, name).pid for name in names} == pids
    bound_once(tranche, namespace, 6)
    settled(tranche)


def test_etcd_outage_changes_nothing(tranche: Layout, namespace: Namespace) -> None:
    """After an outage of etcd no card is allocated twice, and the scheduler recovers."""
    names = ("scheduler", "webhook", "agent")
    pids = {name: Daemon(tranche, name).pid for name in names}
    log = Daemon(tranche, "scheduler").log
    namespace.create(*many(PODS))
    with Daemon(tranche, "etcd").paused():
        time.sleep(OUTAGE_S)
    began = log.stat().st_size
    namespace.placed(PODS)
    wait.until(lambda: writable(namespace), what="a pod created after the outage", timeout_s=PATIENCE_S)
    namespace.placed(PODS + 1)
    assert {name: Daemon(tranche, name).pid for name in names} == pids
    assert not says(Daemon(tranche, "scheduler"), "the ledger differs from a recount", since=began)
    bound_once(tranche, namespace, PODS + 1)
    settled(tranche)


def writable(namespace: Namespace) -> bool:
    """Return whether a pod could be created; the first requests may still fail."""
    try:
        namespace.create(pod("afterwards", gpu=1, gpumem=100))
    except LabError as error:
        return "already exists" in error.why
    return True


def test_new_pod_of_the_same_name_gets_a_new_allocation(
    tranche: Layout, scheduler: Daemon, namespace: Namespace
) -> None:
    """It is deleted and recreated while no scheduler runs; the old pod's share is free."""
    scheduler.stop()
    namespace.create(pod("same", gpu=1, gpumem=100))
    first = namespace.pod("same")["metadata"]["uid"]
    namespace.delete("pod", "same")
    namespace.create(pod("same", gpu=1, gpumem=200))
    start_scheduler(tranche)
    (placed,) = namespace.placed(1)
    assert placed["metadata"]["uid"] != first
    settled(tranche)
