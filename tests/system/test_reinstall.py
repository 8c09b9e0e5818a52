"""Ordinary pods never depend on us: not while we are dead, not while we are taken away, not while we come back."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from lab import components, fleet, health, kubectl, manifests, verify, wait
from lab.errors import LabError
from lab.processes import Daemon
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.test_fence import bind, binding, leadership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
OURS = ("scheduler", "webhook", "agent")
ROUNDS = 20


def stop(layout: Layout) -> None:
    """End every process of ours."""
    for name in OURS:
        Daemon(layout, name).stop()


def start(layout: Layout) -> None:
    """Start them again and wait until each is ready and every node has its cards."""
    found = [components.component(layout, name) for name in OURS]
    for each in found:
        components.start(layout, each)
    for each in found:
        wait.until(
            lambda url=each.ready: health.probe(url),  # type: ignore[misc]
            what=f"{each.name} ready",
            timeout_s=PATIENCE_S,
            daemons=[Daemon(layout, each.name)],
        )
    assert len(list(verify.verify(layout))) == len(fleet.nodes(layout))


@pytest.fixture
def dead(tranche: Layout) -> Iterator[Layout]:
    """The lab while none of our processes lives."""
    stop(tranche)
    yield tranche
    start(tranche)


def flows(namespace: Namespace, name: str) -> None:
    """Have an ordinary pod made and bound by the stock scheduler, and another bound by hand, both ways."""
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


def test_ordinary_pods_flow_while_we_are_dead(dead: Layout, namespace: Namespace) -> None:
    """Created, bound, changed and debugged as ever; a GPU pod is refused, and the message says what to do."""
    flows(namespace, "ordinary")
    namespace.kubectl("annotate", "pod", "ordinary", "mine=1")
    namespace.kubectl("debug", "ordinary", "--image", "tranche.local/busybox:lab", "--profile", "general")
    with pytest.raises(LabError, match="tranche-webhook did not prepare this pod"):
        namespace.create(pod("slice", gpu=1))


def test_ordinary_pods_flow_without_a_leadership(dead: Layout, namespace: Namespace) -> None:
    """The parameter of the fence is gone and nobody puts it back: only Bindings with its label look for it."""
    for kind in ("leadership", "lease"):
        kubectl.run(dead, "-n", "tranche-system", "delete", kind, "tranche-scheduler")
    flows(namespace, "ordinary")


def test_a_dead_webhook_costs_no_time(dead: Layout, namespace: Namespace, plain_namespace: Namespace) -> None:
    """An ordinary pod is made as fast where people opted in as where nobody did: it never waits for the webhook."""

    def seconds(where: Namespace, name: Callable[[int], str]) -> float:
        began = time.monotonic()
        where.create(*(pod(name(number)) for number in range(ROUNDS)))
        return time.monotonic() - began

    seconds(plain_namespace, lambda number: f"warm-{number}")
    elsewhere, here = [], []
    for turn in range(5):  # in turns, because the noise of a machine comes in stretches
        elsewhere.append(seconds(plain_namespace, lambda number, turn=turn: f"p-{turn}-{number}"))  # type: ignore[misc]
        here.append(seconds(namespace, lambda number, turn=turn: f"p-{turn}-{number}"))  # type: ignore[misc]
    # A webhook that is asked and not there costs at least a refused connection for each pod, one that hangs five
    # seconds; the noise of this machine is far below either.
    assert min(here) < min(elsewhere) * 1.5 + 0.2


def uninstall(layout: Layout) -> None:
    """Delete all that manifests/base and manifests/lab have made, as an administrator would."""
    for folder in ("lab", "base"):
        kubectl.run(layout, "delete", "-k", str(manifests.ROOT / folder), "--ignore-not-found", "--wait=true")


@pytest.mark.timeout(500)
def test_uninstalled_and_installed_again(tranche: Layout, namespace: Namespace) -> None:
    """Without us and with us again ordinary pods flow; then GPU pods are placed and a deposed leader is refused.

    Everything goes, the definition of the fence's parameter too: an API server that held on to the old one would refuse
    every Binding of ours, or take any.
    """
    stop(tranche)
    simulated = Daemon(tranche, "simulated-nodes")
    simulated.stop()
    try:
        uninstall(tranche)
        flows(namespace, "without")
        namespace.create(pod("no-capacity", gpu=1))
        assert "Insufficient nvidia.com/gpu" in namespace.unplaced("no-capacity")
        namespace.kubectl("delete", "pod", "no-capacity")
    finally:
        manifests.install(tranche)
        components.start(tranche, components.component(tranche, "simulated-nodes"))
        start(tranche)
    flows(namespace, "again")
    namespace.create(pod("slice", node="gpu-sim-0", gpu=1, gpumem=100), pod("target", gpu=1, gpumem=999999))
    wait.until(lambda: namespace.pod("slice")["spec"].get("nodeName"), what="a slice", timeout_s=PATIENCE_S)
    namespace.unplaced("target")
    epoch, identity = leadership(tranche)
    token = {"gpu.scheduling/leader": f"{epoch - 1}/{identity}", "gpu.scheduling/allocation": "{}"}
    assert "does not lead any more" in bind(namespace, binding(token))
