"""`explain` and `simulate` show the cards that GPUBindings give to the application of a pod."""

import argparse
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from allocation.settings import AllocationSettings
from cli.explain import explanation_lines, explanation_tables, scheduler_state
from cli.explain.explain import text
from cli.explain.local_evaluator import LocalEvaluator
from cli.explain.replicas import Replicas
from cli.installation.rules import Rules
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cli.liveness.liveness import Liveness
from cli.workloads import expand
from cluster.resource import GPU_BINDINGS
from scheduler.api.explanation_types import Explanation
from scheduler.api.simulation_types import Simulation
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state.cluster_state import ClusterState
from tests.cli.support.http_server import serving
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding, settings
from tests.scheduler.support.builders import allocated, namespace, state
from tests.scheduler.support.explaining import explained

TEAM = "team"

ALIVE = Liveness(installed=True, parts=())


def site(*bindings: Any) -> ClusterState:
    """Return two nodes with two cards each, and these bindings."""
    made = state("n1", "n2", settings=settings("labelled"))
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    for each in bindings:
        made.bindings.set(each)
    return made


def printed(explanation: Explanation) -> list[str]:
    """Return the lines that `kubectl gpu explain` prints, with single spaces."""
    arguments = argparse.Namespace(no_headers=False, output="", node="")
    return [" ".join(line.split()) for line in text(explanation, arguments).splitlines()]


def deployment(owner: str, *, replicas: int = 1, policy: str = "") -> dict[str, Any]:
    """Return the Deployment of an application; the labels are those of its pods only."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    template = {"metadata": {"labels": {"app": "x", **app_labels(owner=owner, policy=policy)}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "comfyui", "namespace": TEAM},
        "spec": {"replicas": replicas, "template": template},
    }


def simulate(made: ClusterState, document: dict[str, Any], *, every: bool = False) -> tuple[Simulation, Replicas]:
    """Return what `simulate` shows of a workload."""
    (each,) = expand.of(document)
    evaluator = LocalEvaluator(made, Rules(), ALIVE, budgets=DisruptionBudgets(), namespace=TEAM, cards_of=())
    return evaluator.simulate(each, every=every)


def test_the_bound_cards_are_a_line_and_a_table() -> None:
    """With the node, the binding, and the pods that have them."""
    made = site(gpu_binding("first", "GPU-n1-0", memory="400"), gpu_binding("lost", "GPU-x"))
    made.set_pod(allocated("runs", node="n1", memory=10, labels=app_labels()))
    lines = printed(explained(made, app_pod("a")))
    assert "app comfyui: 2 cards bound, policy all" in lines
    table = lines.index("BOUND CARD NODE MEMORY(MiB) SHARE MODE BINDING CONSUMED BY")
    assert lines[table + 1 : table + 3] == [
        "GPU-n1-0 n1 400 time-slicing first default/runs",
        "GPU-x <none> <none> time-slicing lost <none>",
    ]


def test_a_pod_without_a_bound_card_sees_the_remedy_and_the_other_bindings() -> None:
    """Each with the reason why it is not for this pod."""
    lines = printed(explained(site(gpu_binding("bobs", "GPU-n1-0", owner="bob")), app_pod("a", owner="alice")))
    assert lines[0].startswith("pod default/a waits: NoGpuBinding: no card bound to app comfyui of alice")
    assert "app comfyui of alice: no card bound in namespace default" in lines
    assert any(line.startswith("hint: the application's service has to write a GPUBinding") for line in lines)
    table = lines.index("OTHER BINDING CARD WHY NOT")
    assert lines[table + 1] == "bobs GPU-n1-0 is for owner bob"


def test_the_remedy_for_a_card_that_no_node_has_is_another_binding() -> None:
    """The pod may ask for what it likes."""
    lines = printed(explained(site(gpu_binding("lost", "GPU-x")), app_pod("a")))
    assert lines[0].endswith(
        "no pod that finishes makes it fit: its application needs other bound cards, or the pod other requests"
    )


def test_pods_that_bindings_do_not_concern_have_no_line() -> None:
    """Nor a table."""
    shown = explained(state("n1"), app_pod("a"))
    assert explanation_lines.of_bindings(shown) == []
    assert [*explanation_tables.of_bindings(shown)] == []


@pytest.mark.parametrize(("owner", "card"), [("alice", "GPU-n1-1"), ("bob", "GPU-n2-0"), ("carol", "")])
def test_a_deployment_is_judged_by_the_labels_of_its_pods(owner: str, card: str) -> None:
    """Two users of one application never get each other's cards, and one without a binding gets none."""
    made = site(gpu_binding("a", "GPU-n1-1", owner="alice"), gpu_binding("b", "GPU-n2-0", owner="bob"))
    first, _ = simulate(made, deployment(owner))
    assert first.explanation is not None
    assert first.explanation.bindings is not None
    assert [each.uuid for each in first.explanation.bindings.cards] == [card] * bool(card)
    assert [share.uuid for share in first.explanation.shares] == [card] * bool(card)
    if not card:
        assert first.error is not None
        assert first.error.message.startswith("NoGpuBinding: no card bound to app comfyui of carol")


@pytest.mark.parametrize(("policy", "fit"), [("", 1), ("single", 2)])
def test_a_replica_has_its_bound_cards_while_the_next_ones_are_simulated(policy: str, fit: int) -> None:
    """With policy all the first replica leaves none; a card goes to one pod of the application at a time."""
    made = site(gpu_binding("a", "GPU-n1-0"), gpu_binding("b", "GPU-n1-1"))
    _, replicas = simulate(made, deployment("alice", replicas=3, policy=policy), every=True)
    assert (replicas.fit, replicas.nodes) == (fit, {"n1": fit})
    assert replicas.unfit is not None
    assert replicas.unfit.error is not None
    assert "InsufficientGPU" in replicas.unfit.error.message


@pytest.fixture
def api_server() -> Iterator[tuple[Session, set[str]]]:
    """A session with an API server that has one binding and nothing else, and the paths that were read."""
    binding = gpu_binding("b", "GPU-n1-0")
    item = {
        "metadata": {"name": binding.metadata.name, "uid": "uid-b"},
        "spec": {"uuid": binding.binding.spec.uuid, "appName": "comfyui", "podSelector": {}},
    }
    paths: set[str] = set()

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        path = urlsplit(request.path).path
        paths.add(path)
        return 200, json.dumps({"metadata": {}, "items": [item] if path == GPU_BINDINGS.path() else []}).encode()

    with serving(respond) as url:
        access = Access(url, None, "", {}, "default", "test")
        yield Session(Client(access), "default", access), paths


@pytest.mark.parametrize(("mode", "expected"), [("labelled", ["b"]), ("required", ["b"]), ("off", [])])
def test_bindings_are_read_where_the_installed_settings_count_them(
    api_server: tuple[Session, set[str]], mode: Any, expected: list[str]
) -> None:
    """A cluster without the setting need not define them."""
    session, paths = api_server
    allocation = settings(mode) if mode != "off" else AllocationSettings()
    made = scheduler_state.read(session, msgspec.structs.replace(Rules(), allocation=allocation))
    assert [each.name for each in made.bindings] == expected
    assert (GPU_BINDINGS.path() in paths) is bool(expected)
