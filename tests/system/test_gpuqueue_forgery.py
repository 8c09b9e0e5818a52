"""GpuQueues decide who pays for a pod's cards: nobody charges another team, moves usage away, or writes a queue."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, CHARGED_TO, QUEUE, RESREQ, SYSTEM_NAMESPACE
from lab import kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import tenants
from tests.system.support.gpuqueues import delete_queue
from tests.system.test_forgery import dead_webhook, refusal, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

__all__ = ["dead_webhook"]  # a fixture
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
TEAM, OTHERS = "forgery-a", "forgery-b"


def queue(name: str, *namespaces: str) -> dict[str, Any]:
    """Return a GpuQueue for the pods of some namespaces."""
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    spec = {"namespaceSelector": {"matchExpressions": [names]}}
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQueue", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def team(tranche: Layout, namespace: Namespace) -> Iterator[Namespace]:
    """A namespace whose pods may name queue TEAM; queue OTHERS is for other namespaces."""
    client(tranche).apply(queue(TEAM, namespace.name), queue(OTHERS, "elsewhere"))
    yield namespace
    for name in (TEAM, OTHERS):
        delete_queue(tranche, name)


def charged(namespace: Namespace, name: str) -> str:
    """Return who pays for a placed pod."""
    account: str = namespace.pod(name)["metadata"]["annotations"][CHARGED_TO]
    return account


def running(layout: Layout, name: str) -> int:
    """Return how many pods a queue pays for, as its status says."""
    return int(client(layout).get("gpuqueue", name).get("status", {}).get("running", 0))


# ---- who pays --------------------------------------------------------------------------------------------------------


def test_user_does_not_choose_who_pays(
    team: Namespace, plain_namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """The scheduler's annotation is refused at creation, in every namespace, with and without the webhook."""
    plain, gpu = pod("forged"), pod("forged", gpu=1, gpumem=100)
    for sent in (plain, gpu):
        sent["metadata"]["annotations"] = {CHARGED_TO: OTHERS}
        for where in (team, plain_namespace):
            assert CHARGED_TO in refused(where, sent)
    request.getfixturevalue("dead_webhook")
    for where in (team, plain_namespace):
        assert CHARGED_TO in refused(where, plain)


@pytest.mark.parametrize("subresource", ["", "status", "ephemeralcontainers"])
def test_who_pays_cannot_be_changed(team: Namespace, subresource: str) -> None:
    """Not even an administrator adds, changes or removes the annotation, through the pod or a subresource."""
    team.create(pod("placed", labels={QUEUE: TEAM}, node="gpu-sim-0", gpu=1, gpumem=100), pod("plain"))
    team.placed(2)
    assert charged(team, "placed") == TEAM
    options = ("--subresource", subresource) if subresource else ()
    for name, value in (("placed", OTHERS), ("placed", None), ("plain", TEAM)):
        patch = json.dumps({"metadata": {"annotations": {CHARGED_TO: value}}})
        # A subresource without annotations ignores them; one with annotations is guarded.
        try:
            team.kubectl("patch", "pod", name, *options, "--type", "merge", "-p", patch)
        except LabError as error:
            assert f"annotation {CHARGED_TO}" in error.why, error.why  # noqa: PT017 -- both results are correct
    assert charged(team, "placed") == TEAM
    assert CHARGED_TO not in team.pod("plain")["metadata"].get("annotations", {})


@pytest.mark.parametrize("resource", ["pods/target/binding", "bindings"])
def test_users_binding_charges_nobody(team: Namespace, resource: str) -> None:
    """A user who may bind pods binds none with the scheduler's annotation."""
    team.create(pod("target", gpu=1, gpumem=999999))
    team.unplaced("target")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "target", "annotations": {CHARGED_TO: OTHERS}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-sim-0"},
    }
    path = f"/api/v1/namespaces/{team.name}/{resource}"
    why = refusal(team, "create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert f"annotation {CHARGED_TO} is written by the Tranche scheduler" in why


def test_usage_is_not_moved_away_by_a_label(tranche: Layout, team: Namespace) -> None:
    """The label of a pod that has cards can be changed, but the queue that was charged still pays."""
    client(tranche).apply(queue(OTHERS, team.name))
    team.create(pod("first", labels={QUEUE: TEAM}, node="gpu-sim-0", gpu=1, gpumem=100))
    team.placed(1)
    team.patch("pod", "first", {"metadata": {"labels": {QUEUE: str(OTHERS)}}})
    team.create(pod("second", labels={QUEUE: OTHERS}, node="gpu-sim-0", gpu=1, gpumem=100))
    team.placed(2)
    wait.until(lambda: running(tranche, OTHERS), what="the status of the other queue", timeout_s=PATIENCE_S)
    assert (running(tranche, TEAM), running(tranche, OTHERS)) == (1, 1)
    assert charged(team, "first") == TEAM


def test_pod_of_another_namespace_charges_no_queue(team: Namespace, request: pytest.FixtureRequest) -> None:
    """The webhook refuses a queue that is not for the namespace; without the webhook the pod waits."""
    sent = pod("guest", gpu=1, gpumem=100)
    prepared = json.loads(team.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(sent)))
    sent["metadata"]["labels"] = {QUEUE: OTHERS}
    assert f"GpuQueue {OTHERS}, whose spec.namespaceSelector does not match" in refused(team, sent)
    request.getfixturevalue("dead_webhook")
    team.create({**sent, "spec": prepared["spec"]})
    assert f"GpuQueue {OTHERS} is not for namespace {team.name}" in team.unplaced("guest")
    assert ALLOCATION not in team.pod("guest")["metadata"].get("annotations", {})


# ---- who writes queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_rights_in_a_namespace_are_not_enough_to_write_queues(tranche: Layout, team: Namespace, role: str) -> None:
    """Who may do everything in a namespace creates no queue, and gives none more weight, or another tier."""
    identity = tenants.account(team, role, role=role).kubeconfig
    assert "forbidden" in refusal(team, "create", "-f", "-", stdin=json.dumps(queue("own")), identity=identity)
    for change in ('{"weight": 10000}', '{"priority": 9}', '{"namespaceSelector": {}}'):
        patch = ("patch", "gpuqueue", TEAM, "--type=merge", "-p", f'{{"spec": {change}}}')
        assert "forbidden" in refusal(team, *patch, identity=identity)
    assert "forbidden" in refusal(team, "delete", "gpuqueue", TEAM, identity=identity)


@pytest.mark.parametrize("kind", ["gpuqueues", "gpuquotas"])
@pytest.mark.parametrize("process", ["scheduler", "webhook", "agent"])
def test_no_process_of_ours_writes_a_queue_or_a_quota(tranche: Layout, process: str, kind: str) -> None:
    """Only the scheduler writes anything of one: its status."""
    account = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-{process}"

    def may(verb: str, *what: str) -> bool:
        try:
            return kubectl.run(tranche, "auth", "can-i", verb, *what, "--as", account).strip() == "yes"
        except LabError:
            return False

    assert not [verb for verb in ("create", "update", "patch", "delete", "deletecollection") if may(verb, kind)]
    assert may("patch", kind, "--subresource=status") == (process == "scheduler")
    assert may("list", kind) == (process != "agent")


# ---- requirements in one line ----------------------------------------------------------------------------------------


def requiring(text: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod that requires resources in one line."""
    sent = pod("requires", **metadata)
    sent["metadata"]["annotations"] = {RESREQ: text}
    return sent


def test_requirement_is_guarded_without_the_webhook(
    namespace: Namespace, plain_namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """The pod would start without the GPUs that it requires, so the API server refuses it, and says what to do."""
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    prepared = json.loads(namespace.kubectl(*dry, stdin=json.dumps(requiring("cpu=1,gpu=1"))))
    request.getfixturevalue("dead_webhook")

    def why(sent: dict[str, Any], where: Namespace = namespace) -> str:
        try:
            where.kubectl(*dry, stdin=json.dumps(sent))
        except LabError as error:
            return error.why
        return ""

    for text in ("gpu=1", "cpu=1, GPU = 010", "mem=1.5GiB,gpu=2"):
        words = why(requiring(text))
        assert f"{RESREQ} asks for a GPU, but the admission webhook tranche-webhook did not turn it" in words
        assert "create the pod again once the webhook is ready" in words
    for text in ("gpu=-1", "gpu", "gpus=1", "cpu=1,", "cpu=1=2", "cpu=x", "mem=1z", "cpu=", "cpu=1.5"):
        assert f'"{text}": write cpu=N,mem=SIZE,gpu=N' in why(requiring(text)), text
    assert why(requiring("cpu=1,mem=16g,gpu=0")) == ""
    assert why({**requiring("gpu=1"), "spec": prepared["spec"]}) == ""
    for sent in (requiring("gpu=1"), requiring("gpus=1")):
        other = copy.deepcopy(sent)
        other["spec"]["schedulerName"] = "batch"
        assert why(other) == ""
        sent["metadata"]["labels"] = {"gpu.scheduling/injection": "disabled"}
        assert why(sent) == ""
        del sent["metadata"]["labels"]
        assert why(sent, plain_namespace) == ""
