"""`kubectl gpu queues`, `explain` and `simulate` with GpuQueues of a real API server, by the rights of a viewer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.wire import environment
from lab import kubectl
from lab.client import client
from lab.layout import Layout
from tests.cli.conftest import TEAM, Gpu

ROOT = Path(__file__).parents[3]
QUEUE = "cli-queue"

pytestmark = pytest.mark.apiserver


def queue(name: str, **spec: Any) -> dict[str, Any]:
    """Return a GpuQueue for all namespaces."""
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQueue", "metadata": {"name": name}}
    return {**head, "spec": {"namespaceSelector": {}, **spec}}


def pod(name: str, queue: str) -> dict[str, Any]:
    """Return a pod after admission, which names a queue and waits: no scheduler runs."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}},
        "env": [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
            for variable, key in environment.references("main", 1).items()
        ],
    }
    spec = {"schedulerName": "tranche", "automountServiceAccountToken": False, "containers": [container]}
    metadata = {"name": name, "namespace": TEAM, "labels": {"gpu.scheduling/queue": queue}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module", autouse=True)
def queues(team: Layout) -> Iterator[None]:
    """Two queues, one of which is suspended, and a pod that waits for each and for one that does not exist."""
    kubectl.run(team, "apply", "-f", str(ROOT / "manifests" / "base" / "crds" / "gpuqueues.yaml"))
    kubectl.run(team, "wait", "--for=condition=Established", "crd/gpuqueues.gpu.scheduling")
    made = [queue(QUEUE, weight=3, limits={"nvidia.com/gpu": 2}), queue("cli-halted", suspended=True)]
    made += [pod("queued", QUEUE), pod("halted", "cli-halted"), pod("lost", "cli-ghost")]
    client(team).apply(*made)
    yield
    for each in made:
        kubectl.run(team, "delete", each["kind"], each["metadata"]["name"], "-n", TEAM, "--ignore-not-found")


def test_a_viewer_sees_the_queues(gpu: Gpu) -> None:
    """What waits is read from the pods; notes name the queues that take none."""
    done = gpu("queues", "-o", "json")
    assert done.returncode == 0, done.stderr
    shown = {each["name"]: each for each in json.loads(done.stdout)["queues"]}
    assert (shown[QUEUE]["weight"], shown[QUEUE]["waiting"], shown[QUEUE]["next"]) == (3, 1, [f"{TEAM}/queued"])
    assert (shown["cli-halted"]["suspended"], shown["cli-ghost"]["exists"]) == (True, False)
    table = gpu("queues", QUEUE, "-o", "wide")
    assert table.stdout.splitlines()[0].split()[:4] == ["NAME", "WEIGHT", "PRIORITY", "SHARE"]
    assert "nvidia.com/gpu=0/2" in table.stdout
    assert "GpuQueue cli-ghost does not exist: 1 pod waits" in gpu("queues").stderr


def test_explain_decides_with_queues(gpu: Gpu) -> None:
    """The pods of the other queues wait for these, and have no rank."""
    assert "order: 1st of 1 waiting pod\n" in gpu("explain", "queued").stdout
    assert (
        f"pod {TEAM}/halted waits: QueueSuspended: GpuQueue cli-halted is suspended" in gpu("explain", "halted").stdout
    )
    lost = gpu("explain", "lost").stdout
    assert f"pod {TEAM}/lost waits: QueueUnknown: GpuQueue cli-ghost does not exist" in lost
    assert f"GpuQueues for namespace {TEAM}: cli-halted, cli-queue\n" in lost


def test_simulate_shows_the_queue_that_would_be_charged(gpu: Gpu, tmp_path: Path) -> None:
    """The queue need not have pods."""
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod("new", QUEUE)))
    assert f"queue: GpuQueue {QUEUE}, weight 3, share 0.00" in gpu("simulate", "-f", str(file)).stdout
