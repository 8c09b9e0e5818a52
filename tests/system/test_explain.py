"""Explain and simulate on a real control plane: predictions come true, and queries write nothing."""

from __future__ import annotations

import json
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lab import components, kubeconfig, wait
from lab.client import client
from lab.processes import Daemon
from tests.support import gpu_command
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit
from tests.system.support.scheduler_api import query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

Gpu = "Callable[..., subprocess.CompletedProcess[str]]"


@pytest.fixture
def gpu(tranche: Layout, namespace: Namespace) -> Iterator[Gpu]:
    """A function that runs `kubectl gpu` as an account with the viewer role only."""
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace.name}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"viewer-{namespace.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tranche-viewer"},
        "subjects": [account],
    }
    metadata = {"name": "viewer", "namespace": namespace.name}
    client(tranche).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, binding)
    identity = kubeconfig.service_account_kubeconfig(tranche, namespace=namespace.name, name="viewer")

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return gpu_command.run(identity, *arguments, "-n", namespace.name, stdin=stdin)

    yield run
    client(tranche).delete("clusterrolebinding", f"viewer-{namespace.name}")


def cards(made: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the cards in a pod's annotation, with the MiB of each."""
    record = json.loads(made["metadata"]["annotations"]["gpu.scheduling/allocation"])
    return [(share["uuid"], share["memoryMiB"]) for shares in record["containers"].values() for share in shares]


def explained_cards(explanation: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the cards in an explanation, with the MiB of each."""
    return [(share["uuid"], share["memoryMiB"]) for share in explanation["shares"]]


def test_what_is_simulated_comes_true(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """Each pod is simulated over HTTP and by the command, then created; it is placed where both predicted."""
    chance = random.Random(8)  # noqa: S311 -- a test
    for number in range(15):
        made = pod(f"p{number}", gpu=chance.choice((1, 1, 2)), gpumem=chance.choice((1000, 30000, 70000)))
        made["metadata"]["namespace"] = namespace.name
        if chance.random() < 0.4:
            made["metadata"]["annotations"] = {"hami.io/node-scheduler-policy": "spread"}
        over_http = query(tranche, "/api/simulate-schedule", made)["explanation"]
        done = gpu("simulate", "-f", "-", "-o", "json", stdin=json.dumps(made))
        assert (done.returncode, done.stderr) == (0, "")
        by_command = json.loads(done.stdout)["items"][0]["simulation"]["explanation"]
        namespace.create(made)
        placed = next(each for each in namespace.placed(number + 1) if each["metadata"]["name"] == f"p{number}")
        for explanation in (over_http, by_command):
            assert (explanation["node"], explained_cards(explanation)) == (placed["spec"]["nodeName"], cards(placed))

        def is_seen(name: str = f"{namespace.name}/p{number}") -> bool:
            worker = query(tranche, "/api/allocation")["allocation"].get(name)
            return worker is not None and not worker["assumed"]

        wait.until(is_seen, what="the pod in the scheduler's cache", timeout_s=PATIENCE_S)
    view = query(tranche, "/api/allocation")
    for placed in namespace.pods():
        name = f"{namespace.name}/{placed['metadata']['name']}"
        known = view["allocation"][name]
        assert [(gpu_["uuid"], gpu_["memoryMiB"]) for gpu_ in known["gpus"]] == cards(placed)
        assert name in view["nodeWorkerStore"][placed["spec"]["nodeName"]]
        assert {uuid for uuid, names in view["gpuToWorkerMap"].items() if name in names} == {
            u for u, _ in cards(placed)
        }


def test_explanation_of_a_pending_pod_matches_its_condition(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """The scheduler, its API and the command give the same reasons in the same words."""
    namespace.create(pod("waits", gpu=1, gpumem=999999))
    reason = namespace.unplaced("waits")
    over_http = query(tranche, f"/api/explain/{namespace.name}/waits")
    by_command = json.loads(gpu("explain", "waits", "-o", "json").stdout)
    assert over_http["note"] == by_command["note"] == reason
    assert over_http["nodes"] == by_command["nodes"]
    assert over_http["queue"]["place"] == "unschedulable"
    assert over_http["queue"]["attempts"] >= 1
    for node in over_http["nodes"]:
        assert sum(node["counts"].values()) == (len(node["cards"]) if node["counts"] else 0)
    lines = gpu("explain", "waits").stdout.splitlines()
    assert lines[0].startswith(f"pod {namespace.name}/waits waits: none of the ")
    assert "CardInsufficientMemory" in lines[5]
    of_node = gpu("explain", "waits", "--node", "gpu-sim-0").stdout.splitlines()
    assert [line.split()[6] for line in of_node[6:]] == ["CardInsufficientMemory"] * 8


def test_explain_without_a_scheduler_predicts_the_placement(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """While no scheduler runs, the command predicts the placement that a scheduler then makes."""
    Daemon(tranche, "scheduler").stop()
    try:
        namespace.create(pod("asks", gpu=2, gpumem=5000))
        explanation = json.loads(gpu("explain", "asks", "-o", "json").stdout)
        assert explanation["outcome"] == "fits"
    finally:
        components.start(tranche, components.component(tranche, "scheduler"))
    (placed,) = namespace.placed(1)
    assert (explanation["node"], explained_cards(explanation)) == (placed["spec"]["nodeName"], cards(placed))
    bound = gpu("explain", "asks").stdout.splitlines()
    assert bound[0].startswith(f"pod {namespace.name}/asks is bound to {explanation['node']}, cards ")


def test_queries_write_nothing(tranche: Layout, namespace: Namespace, gpu: Gpu) -> None:
    """The audit log has no write by the account that asks, and none by the scheduler except to its Lease."""
    namespace.create(pod("waits", gpu=1, gpumem=999999))
    namespace.unplaced("waits")

    def has_event() -> bool:
        events = namespace.kubectl("get", "events", "-o", "name", "--field-selector=involvedObject.name=waits")
        return bool(events)

    wait.until(has_event, what="the event", timeout_s=PATIENCE_S)

    def written() -> list[str]:
        made = audit.attempts(tranche, user=audit.SCHEDULER)
        return [f"{audit.what(each)} {each['objectRef'].get('name')}" for each in made if audit.what(each) != "leases"]

    before = written()
    for memory in (1000, 999999):
        made = pod("asked", gpu=1, gpumem=memory)
        made["metadata"]["namespace"] = namespace.name
        query(tranche, "/api/simulate-schedule", made)
        gpu("simulate", "-f", "-", stdin=json.dumps(made))
    query(tranche, "/api/allocation")
    query(tranche, f"/api/explain/{namespace.name}/waits")
    gpu("explain", "waits")
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "marker", "namespace": namespace.name}}
    client(tranche).apply(marker)  # everything before it in the log is complete
    wait.until(
        lambda: any(each["objectRef"].get("name") == "marker" for each in audit.writes(tranche)),
        what="the audit log",
        timeout_s=PATIENCE_S,
    )
    assert written() == before
    viewer = f"system:serviceaccount:{namespace.name}:viewer"
    assert audit.attempts(tranche, user=viewer) == []
    with tranche.audit_log.open(encoding="utf-8") as lines:
        assert any(f'"username":"{viewer}"' in line for line in lines)  # the log contains the viewer's reads


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (pod("a", gpu=1, gpumem="10Gi"), 'would be refused at creation: spec.containers[0].resources.limits["nvidia'),
        (pod("a", gpu=99), "waits: none of the "),
    ],
)
def test_simulate_exits_with_1_if_the_pod_would_not_be_placed(gpu: Gpu, made: dict[str, Any], message: str) -> None:
    """The reason is on standard output."""
    done = gpu("simulate", "-f", "-", stdin=json.dumps(made))
    assert done.returncode == 1
    assert message in done.stdout
