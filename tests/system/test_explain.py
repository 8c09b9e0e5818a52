"""People find out why, on a real control plane: what is foretold comes true, and asking writes nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import components, kubeconfig, kubectl, wait
from lab.layout import Port
from lab.processes import Daemon
from tests.system import audit
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

Gpu = "Callable[..., subprocess.CompletedProcess[str]]"


@pytest.fixture
def gpu(tranche: Layout, namespace: Namespace) -> Iterator[Gpu]:
    """Run `kubectl gpu` as somebody who has the viewer's role and nothing else."""
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace.name}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"viewer-{namespace.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tranche-viewer"},
        "subjects": [account],
    }
    metadata = {"name": "viewer", "namespace": namespace.name}
    kubectl.apply(tranche, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, binding)
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace=namespace.name, name="viewer")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments, "--kubeconfig", str(identity), "-n", namespace.name],
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    yield run
    kubectl.run(tranche, "delete", "clusterrolebinding", f"viewer-{namespace.name}")


def ask(layout: Layout, path: str, body: dict[str, Any] | None = None) -> Any:
    """Ask the scheduler's API."""
    data = json.dumps(body).encode() if body is not None else None
    url = f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}{path}"
    with urllib.request.urlopen(url, data=data, timeout=30) as answer:
        return json.loads(answer.read())


def cards(made: dict[str, Any]) -> list[tuple[str, int]]:
    """Answer the cards of a pod by its annotation, with the MiB of each."""
    record = json.loads(made["metadata"]["annotations"]["gpu.scheduling/allocation"])
    return [(share["uuid"], share["memoryMiB"]) for shares in record["containers"].values() for share in shares]


def told_cards(explanation: dict[str, Any]) -> list[tuple[str, int]]:
    """Answer the same of an explanation."""
    return [(share["uuid"], share["memoryMiB"]) for share in explanation["shares"]]


def test_what_is_simulated_comes_true(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """Over HTTP and on the command line: each pod is asked about, then created, and is where both said."""
    chance = random.Random(8)  # noqa: S311 -- a test
    for number in range(15):
        made = pod(f"p{number}", gpu=chance.choice((1, 1, 2)), gpumem=chance.choice((1000, 30000, 70000)))
        made["metadata"]["namespace"] = namespace.name
        if chance.random() < 0.4:
            made["metadata"]["annotations"] = {"hami.io/node-scheduler-policy": "spread"}
        over_http = ask(tranche, "/api/simulate-schedule", made)["explanation"]
        done = gpu("simulate", "-f", "-", "-o", "json", stdin=json.dumps(made))
        assert (done.returncode, done.stderr) == (0, "")
        by_hand = json.loads(done.stdout)["items"][0]["simulation"]["explanation"]
        namespace.create(made)
        placed = next(each for each in namespace.placed(number + 1) if each["metadata"]["name"] == f"p{number}")
        for told in (over_http, by_hand):
            assert (told["node"], told_cards(told)) == (placed["spec"]["nodeName"], cards(placed))

        def is_seen(name: str = f"{namespace.name}/p{number}") -> bool:
            worker = ask(tranche, "/api/allocation")["allocation"].get(name)
            return worker is not None and not worker["assumed"]

        wait.until(is_seen, what="the scheduler's sight of it", timeout_s=PATIENCE_S)
    view = ask(tranche, "/api/allocation")
    for placed in namespace.pods():
        name = f"{namespace.name}/{placed['metadata']['name']}"
        known = view["allocation"][name]
        assert [(gpu_["uuid"], gpu_["memoryMiB"]) for gpu_ in known["gpus"]] == cards(placed)
        assert name in view["nodeWorkerStore"][placed["spec"]["nodeName"]]
        assert {uuid for uuid, names in view["gpuToWorkerMap"].items() if name in names} == {
            u for u, _ in cards(placed)
        }


def test_a_pod_that_waits_is_explained_as_its_event_says(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """The same words from the scheduler, from its API, and from who only looks."""
    namespace.create(pod("waits", gpu=1, gpumem=999999))
    reason = namespace.unplaced("waits")
    over_http = ask(tranche, f"/api/explain/{namespace.name}/waits")
    by_hand = json.loads(gpu("explain", "waits", "-o", "json").stdout)
    assert over_http["note"] == by_hand["note"] == reason
    assert over_http["nodes"] == by_hand["nodes"]
    assert over_http["queue"]["place"] == "waiting"
    assert over_http["queue"]["attempts"] >= 1
    for node in over_http["nodes"]:
        assert sum(node["counts"].values()) == (len(node["cards"]) if node["counts"] else 0)
    lines = gpu("explain", "waits").stdout.splitlines()
    assert lines[0].startswith(f"pod {namespace.name}/waits waits: none of the ")
    assert "CardInsufficientMemory" in lines[4]
    of_node = gpu("explain", "waits", "--node", "gpu-sim-0").stdout.splitlines()
    assert [line.split()[6] for line in of_node[5:]] == ["CardInsufficientMemory"] * 8


def test_without_a_scheduler(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """While none runs a pod is told where it would go; that is where it goes when one does."""
    Daemon(tranche, "scheduler").stop()
    try:
        namespace.create(pod("asks", gpu=2, gpumem=5000))
        told = json.loads(gpu("explain", "asks", "-o", "json").stdout)
        assert told["outcome"] == "fits"
    finally:
        components.start(tranche, components.component(tranche, "scheduler"))
    (placed,) = namespace.placed(1)
    assert (told["node"], told_cards(told)) == (placed["spec"]["nodeName"], cards(placed))
    bound = gpu("explain", "asks").stdout.splitlines()
    assert bound[0].startswith(f"pod {namespace.name}/asks is bound to {told['node']}, cards ")


def test_asking_writes_nothing(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """The audit log has no write by who asks, and none by the scheduler that is not its Lease."""
    namespace.create(pod("waits", gpu=1, gpumem=999999))
    namespace.unplaced("waits")

    def told() -> bool:
        events = namespace.kubectl("get", "events", "-o", "name", "--field-selector=involvedObject.name=waits")
        return bool(events)

    wait.until(told, what="the event", timeout_s=PATIENCE_S)

    def written() -> list[str]:
        made = audit.attempts(tranche, user=audit.SCHEDULER)
        return [f"{audit.what(each)} {each['objectRef'].get('name')}" for each in made if audit.what(each) != "leases"]

    before = written()
    for memory in (1000, 999999):
        made = pod("asked", gpu=1, gpumem=memory)
        made["metadata"]["namespace"] = namespace.name
        ask(tranche, "/api/simulate-schedule", made)
        gpu("simulate", "-f", "-", stdin=json.dumps(made))
    ask(tranche, "/api/allocation")
    ask(tranche, f"/api/explain/{namespace.name}/waits")
    gpu("explain", "waits")
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker", "namespace": namespace.name}}
    kubectl.apply(tranche, marker)  # what comes before it in the log is complete
    wait.until(
        lambda: any(each["objectRef"].get("name") == "marker" for each in audit.writes(tranche)),
        what="the audit log",
        timeout_s=PATIENCE_S,
    )
    assert written() == before
    viewer = f"system:serviceaccount:{namespace.name}:viewer"
    assert audit.attempts(tranche, user=viewer) == []
    with tranche.audit_log.open(encoding="utf-8") as lines:
        assert any(f'"username":"{viewer}"' in line for line in lines)  # whose reads are in the log


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (pod("a", gpu=1, gpumem="10Gi"), 'would be refused at creation: spec.containers[0].resources.limits["nvidia'),
        (pod("a", gpu=99), "waits: none of the "),
    ],
)
def test_a_pod_that_would_not_be_placed_is_code_1(gpu: Gpu, made: dict[str, Any], said: str) -> None:
    """With the reason on standard output, where the answer belongs."""
    done = gpu("simulate", "-f", "-", stdin=json.dumps(made))
    assert done.returncode == 1
    assert said in done.stdout
