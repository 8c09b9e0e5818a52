"""Whatever happens to a process of ours, every pod is bound once and no card is given out twice."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lab import components, control_plane, kubectl, wait
from lab.layout import Port
from lab.processes import Daemon
from tests.system import audit, truth
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(400)]


@pytest.fixture
def scheduler(tranche: Layout) -> Iterator[Daemon]:
    """The scheduler's process; it runs again when the test is over."""
    yield Daemon(tranche, "scheduler")
    start_scheduler(tranche)
    settled(tranche)


def start_scheduler(layout: Layout) -> None:
    """Start the scheduler unless it runs."""
    (component,) = (each for each in components.all_components(layout) if each.name == "scheduler")
    components.start(layout, component)


def settled(layout: Layout) -> None:
    """Wait until the scheduler's ledger equals a recount of the API server's objects."""

    def equal() -> bool:
        try:
            return truth.scheduler_counts(layout) == truth.by_card(truth.recount(layout))
        except (OSError, KeyError):
            return False

    wait.until(equal, what="the scheduler's ledger equal to a recount", timeout_s=PATIENCE_S)


def many(count: int) -> list[dict[str, object]]:
    """Answer manifests of pods that together fill much of the fleet."""
    return [pod(f"p{index:03}", gpu=1, gpumem=20000, gpucores=20) for index in range(count)]


def test_killed_at_random_ten_times(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """SIGKILL while 96 pods are created: each is bound once, nothing is over capacity, the ledger is a recount.

    96 fill three nodes of 8 cards with four shares each: a share lost or counted twice would keep one waiting.
    """
    draw = random.Random(20261121)  # noqa: S311 -- when to kill
    manifests = many(96)
    for round_ in range(10):
        began = scheduler.log.stat().st_size
        namespace.create(*manifests[round_ * 9 : round_ * 9 + 9])
        # At any moment from before the first decision of the term to after the last.
        wait.until(
            lambda began=began: says(scheduler, "deciding", since=began) or not scheduler.is_running or round_ == 0,  # type: ignore[misc]
            what="a term of the scheduler",
            timeout_s=PATIENCE_S,
        )
        time.sleep(draw.uniform(0, 0.15))
        pid = scheduler.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            wait.until(lambda: not scheduler.is_running, what="the scheduler's end", timeout_s=PATIENCE_S)
        start_scheduler(tranche)
    namespace.create(*manifests[90:])
    namespace.placed(96)
    counts = truth.bindings(audit.writes(tranche, namespace=namespace.name))
    assert counts == dict.fromkeys((each["metadata"]["name"] for each in manifests), 1)  # type: ignore[index]
    settled(tranche)


def says(daemon: Daemon, text: str, *, since: int) -> bool:
    """Whether a process has logged `text` after byte `since` of its log."""
    with daemon.log.open("rb") as log:
        log.seek(since)
        return text.encode() in log.read()


def test_a_stopped_leader_comes_back_too_late(tranche: Layout, scheduler: Daemon, namespace: Namespace) -> None:
    """SIGSTOP past its Lease, another leads, SIGCONT: the first one binds nothing more, and every pod is bound once."""
    pid = scheduler.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    second = Daemon(tranche, "scheduler-2")
    try:
        start_second(tranche, second)
        namespace.create(*many(20))
        namespace.placed(20)
        began = scheduler.log.stat().st_size
        os.kill(pid, signal.SIGCONT)
        wait.until(
            lambda: says(scheduler, "leading no more", since=began), what="the first one's insight", timeout_s=PATIENCE_S
        )
    finally:
        os.kill(pid, signal.SIGCONT)
        second.stop()
    counts = truth.bindings(audit.writes(tranche, namespace=namespace.name))
    assert set(counts.values()) == {1}
    assert len(counts) == 20
    settled(tranche)


def start_second(layout: Layout, daemon: Daemon) -> None:
    """Start another replica of the scheduler, on a port of its own, and wait until it leads."""
    (component,) = (each for each in components.all_components(layout) if each.name == "scheduler")
    components.start_as(layout, component, daemon, "--port", str(layout.port(Port.SCHEDULER) + 50))
    wait.until(lambda: says(daemon, "deciding", since=0), what="a second leader", timeout_s=PATIENCE_S)


def test_a_restarted_api_server_changes_nothing(tranche: Layout, namespace: Namespace) -> None:
    """The API server goes away and comes back: no process of ours ends, nothing is placed twice, work goes on."""
    pids = {name: Daemon(tranche, name).pid for name in ("scheduler", "webhook", "agent")}
    namespace.create(*many(5))
    control_plane.restart_apiserver(tranche)
    wait.until(lambda: created(namespace), what="a pod created after the restart", timeout_s=PATIENCE_S)
    namespace.placed(6)
    assert {name: Daemon(tranche, name).pid for name in pids} == pids
    assert set(truth.bindings(audit.writes(tranche, namespace=namespace.name)).values()) == {1}
    settled(tranche)


def created(namespace: Namespace) -> bool:
    """Try to create one more pod; a client's request may meet the restart."""
    from lab.errors import LabError  # noqa: PLC0415

    try:
        namespace.create(pod("afterwards", gpu=1, gpumem=100))
    except LabError:
        return False
    return True


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


def test_the_fence_refuses_an_old_token(tranche: Layout, namespace: Namespace) -> None:
    """A Binding with the scheduler's identity and the token of an earlier term is refused by the API server itself."""
    from lab import kubeconfig  # noqa: PLC0415
    from lab.errors import LabError  # noqa: PLC0415

    leadership = kubectl.get(tranche, "-n", "tranche-system", "leadership", "tranche-scheduler")["spec"]
    waiting = pod("target", gpu=1, gpumem=100)
    waiting["spec"]["schedulingGates"] = [{"name": "test.example/hold"}]
    namespace.create(waiting)
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace="tranche-system", name="tranche-scheduler")
    old = f"{leadership['epoch'] - 1}/{leadership['identity']}"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "target",
            "labels": {"gpu.scheduling/fenced": "true"},
            "annotations": {"gpu.scheduling/leader": old},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-sim-0"},
    }
    with pytest.raises(LabError) as refused:
        post_binding(tranche, namespace, binding, identity=identity)
    assert f"the scheduler with token {old} does not lead any more" in refused.value.why


post_binding: Callable[..., str]
