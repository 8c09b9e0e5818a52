"""Ordinary pods never depend on Tranche: not while it is down, and not while it is uninstalled or reinstalled."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from lab import components, fleet, health, kubectl, manifests, verify, wait
from lab.client import client
from lab.errors import LabError
from lab.processes import Daemon
from tests.policies.support.pods import binding
from tests.support import identities
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod
from tests.system.test_fence import leadership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
PROCESSES = ("scheduler", "webhook", "agent")
ROUNDS = 20


def stop(layout: Layout) -> None:
    """Stop every process of the product."""
    for name in PROCESSES:
        Daemon(layout, name).stop()


def start(layout: Layout) -> None:
    """Start every process of the product, and wait until each is ready and every node has its cards."""
    started = [components.component(layout, name) for name in PROCESSES]
    for each in started:
        components.start(layout, each)
    for each in started:
        wait.until(
            lambda url=each.ready: health.probe(url),  # type: ignore[misc]
            what=f"{each.name} ready",
            timeout_s=PATIENCE_S,
            daemons=[Daemon(layout, each.name)],
        )
    assert len(list(verify.verify(layout))) == len(fleet.nodes(layout))


@pytest.fixture
def dead(tranche: Layout) -> Iterator[Layout]:
    """The lab while no process of the product runs."""
    stop(tranche)
    yield tranche
    start(tranche)


def ordinary_pods_work(namespace: Namespace, name: str) -> None:
    """Check that the stock scheduler binds an ordinary pod, and that both APIs for Bindings bind one by hand."""
    by_hand = []
    for kind in ("pods", "legacy"):
        sent = pod(f"{name}-{kind}")
        sent["spec"]["schedulerName"] = "nobody"
        by_hand.append(sent)
    namespace.create(pod(name), *by_hand)
    for kind in ("pods", "legacy"):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"{name}-{kind}", "annotations": {"mine": "1"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-sim-0"},
        }
        path = f"/api/v1/namespaces/{namespace.name}/"
        path += f"pods/{name}-{kind}/binding" if kind == "pods" else "bindings"
        namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))

    def is_bound() -> bool:
        return bool(namespace.pod(name)["spec"].get("nodeName"))

    wait.until(is_bound, what=f"a node for {name}", timeout_s=PATIENCE_S)


def test_ordinary_pods_work_while_all_processes_are_down(dead: Layout, namespace: Namespace) -> None:
    """They are created, bound, changed and debugged as usual; a GPU pod is rejected, and the error says what to do."""
    ordinary_pods_work(namespace, "ordinary")
    namespace.patch("pod", "ordinary", {"metadata": {"annotations": {"mine": "1"}}})
    namespace.kubectl("debug", "ordinary", "--image", "tranche.local/busybox:lab", "--profile", "general")
    with pytest.raises(LabError, match="tranche-webhook did not prepare this pod"):
        namespace.create(pod("slice", gpu=1))


def test_ordinary_pods_work_without_a_leadership(dead: Layout, namespace: Namespace) -> None:
    """The parameter of the fence is missing and is not restored: only Bindings with the fence label need it."""
    for kind in ("leadership", "lease"):
        client(dead).delete(kind, "tranche-scheduler", namespace="tranche-system")
    ordinary_pods_work(namespace, "ordinary")


def test_dead_webhook_does_not_delay_ordinary_pods(
    dead: Layout, namespace: Namespace, plain_namespace: Namespace
) -> None:
    """An ordinary pod is created equally fast with and without opt-in, because it never waits for the webhook."""

    def seconds(where: Namespace, name: Callable[[int], str]) -> float:
        began = time.monotonic()
        where.create(*(pod(name(number)) for number in range(ROUNDS)))
        return time.monotonic() - began

    seconds(plain_namespace, lambda number: f"warm-{number}")
    elsewhere, here = [], []
    for turn in range(5):  # in turns, because a machine is noisy for stretches of time
        elsewhere.append(seconds(plain_namespace, lambda number, turn=turn: f"p-{turn}-{number}"))  # type: ignore[misc]
        here.append(seconds(namespace, lambda number, turn=turn: f"p-{turn}-{number}"))  # type: ignore[misc]
    # Calling a dead webhook costs at least a refused connection per pod, a hanging one five seconds; the noise of this
    # machine is far below either.
    assert min(here) < min(elsewhere) * 1.5 + 0.2


def uninstall(layout: Layout) -> None:
    """Delete all objects of manifests/base and manifests/lab, as an administrator would."""
    for folder in ("lab", "base"):
        kubectl.run(layout, "delete", "-k", str(manifests.ROOT / folder), "--ignore-not-found", "--wait=true")


def test_uninstall_and_reinstall_keep_ordinary_pods_working(tranche: Layout, namespace: Namespace) -> None:
    """Ordinary pods work throughout; after the reinstallation GPU pods are placed and a deposed leader is rejected.

    Everything is deleted, including the CRD of the fence's parameter: an API server that kept using the old one would
    reject every Binding of the scheduler, or accept any.
    """
    stop(tranche)
    simulated = Daemon(tranche, "simulated-nodes")
    simulated.stop()
    try:
        uninstall(tranche)
        ordinary_pods_work(namespace, "without")
        namespace.create(pod("no-capacity", gpu=1))
        assert "Insufficient nvidia.com/gpu" in namespace.unplaced("no-capacity")
        namespace.delete("pod", "no-capacity")
    finally:
        manifests.install(tranche)
        components.publish(tranche)
        for name in ("simulated-nodes", "local-provisioner"):  # their ServiceAccounts were deleted, too
            components.start(tranche, components.component(tranche, name))
        start(tranche)
    ordinary_pods_work(namespace, "again")
    namespace.create(pod("slice", node="gpu-sim-0", gpu=1, gpumem=100), pod("target", gpu=1, gpumem=999999))
    wait.until(lambda: namespace.pod("slice")["spec"].get("nodeName"), what="a slice", timeout_s=PATIENCE_S)
    namespace.unplaced("target")
    epoch, identity = leadership(tranche)
    token = {"gpu.scheduling/leader": f"{epoch - 1}/{identity}", "gpu.scheduling/allocation": "{}"}
    path = f"/api/v1/namespaces/{namespace.name}/pods/target/binding"
    scheduler = identities.process(tranche, "scheduler")
    why = refusal(lambda: scheduler.request("POST", path, body=binding("target", token)))
    assert "does not lead any more" in why
