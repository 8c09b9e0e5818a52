"""`explain` and `simulate` show the queue of a pod, its rank, and what comes before it."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from allocation.names import QUEUE
from cli.explain import explanation_lines, scheduler_state
from cli.explain.explain import text
from cli.explain.local_evaluator import LocalEvaluator
from cli.installation.rules import Rules
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cli.liveness.liveness import Liveness
from cli.workloads import expand
from cluster.resource import GPU_QUEUES, PODS
from scheduler.api.explanation_types import Explanation
from scheduler.api.queue_types import PodQueue, QueueAhead
from scheduler.api.simulation_types import Simulation
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.settings import GangSettings
from scheduler.state import kinds
from scheduler.state.cluster_state import ClusterState
from tests.cli.support.http_server import serving
from tests.scheduler.support.builders import namespace, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.queued import charged
from tests.scheduler.support.quotas import gpu_quota

TEAM = "default"

ALIVE = Liveness(installed=True, parts=())


def site(*pods: Pod) -> ClusterState:
    """Return two cards of 1000 MiB, queues of weight 3 and 1, and these pods."""
    made = state("n1")
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    made.limits.set_queue(gpu_queue("team-a", weight=3))
    made.limits.set_queue(gpu_queue("team-b"))
    for each in pods:
        made.set_pod(each)
    return made


def evaluator(made: ClusterState) -> LocalEvaluator:
    """Return what the command line evaluates pods with."""
    return LocalEvaluator(made, Rules(), ALIVE, budgets=DisruptionBudgets(), namespace=TEAM, cards_of=())


def waiting(name: str, *, queue: str, memory: int = 700) -> Pod:
    """Return a pod that names a queue."""
    return pod(name, memory=memory, labels={QUEUE: queue})


def printed(explanation: Explanation) -> list[str]:
    """Return the lines that `kubectl gpu explain` prints."""
    return text(explanation, argparse.Namespace(no_headers=False, output="", node="")).splitlines()


def test_a_waiting_pod_has_a_line_about_its_queue_and_one_about_its_rank() -> None:
    """The words are those of `kubectl gpu queues`."""
    asked = waiting("asked", queue="team-a")
    made = site(
        charged("a", memory=900, queue="team-a"),
        charged("b", memory=400, queue="team-b", card=1),
        waiting("first", queue="team-a"),
        asked,
        waiting("theirs", queue="team-b"),
    )
    lines = printed(evaluator(made).explain(waiting("theirs", queue="team-b")))
    assert lines[2] == "queue: GpuQueue team-b, weight 1, share 0.20 of nvidia.com/gpumem, entitled to 0.25"
    assert lines[3] == (
        "order: 3rd of 3 waiting pods; GpuQueue team-a is before it with share 0.45 of nvidia.com/gpumem at weight 3:"
        " 0.15 by weight, against 0.20"
    )
    assert printed(evaluator(made).explain(asked))[3] == "order: 2nd of 3 waiting pods"


def test_a_pod_waits_for_a_higher_tier_as_the_scheduler_decides() -> None:
    """The command does not have the queue of the scheduler, so it evaluates the pods of the higher tier itself."""
    full = (charged("x", memory=900, queue="team-a"), charged("y", memory=900, queue="team-a", card=1))
    small = waiting("small", queue="team-b", memory=50)
    made = site(*full, small, waiting("urgent", queue="urgent"))
    made.limits.set_queue(gpu_queue("urgent", priority=7))
    assert printed(evaluator(made).explain(small))[3] == (
        "order: 2nd of 2 waiting pods; GpuQueue urgent is before it with tier 7;"
        " waits for GpuQueue urgent, which is of a higher tier and has less than it asks for"
    )
    (order,) = simulated(made, queue="team-b")[1:]
    assert order == "order: waits for GpuQueue urgent, which is of a higher tier and has less than it asks for"
    made.drop_pod(waiting("urgent", queue="urgent"))
    made.set_pod(waiting("hopeless", queue="urgent", memory=9000))
    assert "waits for" not in printed(evaluator(made).explain(small))[3]


def simulation(made: ClusterState, *, queue: str) -> Simulation:
    """Return what `kubectl gpu simulate` has of a Deployment whose pods name a queue."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    template = {"metadata": {"labels": {"app": "x", **({QUEUE: queue} if queue else {})}}, "spec": spec}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": TEAM}}
    (each,) = expand.of({**head, "spec": {"template": template}})
    first, _ = evaluator(made).simulate(each, every=False)
    return first


def simulated(made: ClusterState, *, queue: str) -> list[str]:
    """Return the lines about the queue that `kubectl gpu simulate` prints."""
    explanation = simulation(made, queue=queue).explanation
    assert explanation is not None
    return explanation_lines.of_queue(explanation)


def test_simulate_shows_the_queue_that_would_be_charged() -> None:
    """That of the template's label, or the namespace's own; a pod that does not exist has no rank."""
    made = site(charged("a", memory=900, queue="team-a"))
    assert simulated(made, queue="team-b") == [
        "queue: GpuQueue team-b, weight 1, share 0.00, entitled to 0.25",
    ]
    assert simulated(made, queue="") == ["queue: namespace default, weight 1, share 0.00, entitled to 0.25"]


def test_simulate_says_that_admission_would_refuse_a_pod_of_a_forbidden_queue() -> None:
    """In the words of admission."""
    made = site()
    made.limits.set_queue(gpu_queue("closed", namespaceSelector={"matchLabels": {"team": "x"}}))
    first = simulation(made, queue="closed")
    assert first.error is not None
    assert first.error.type == "NotAdmitted"
    assert "names GpuQueue closed, whose spec.namespaceSelector does not match namespace default" in first.error.message


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_ranks_are_ordinals(rank: int, words: str) -> None:
    """As people say them."""
    queue = PodQueue("team-a", 1, 0, 0.0, "", 1.0, rank=rank, waiting=200)
    lines = explanation_lines.of_queue(Explanation(TEAM, "a", "waits", "", gpu_queue=queue))
    assert lines[1] == f"order: {words} of 200 waiting pods"


def test_a_strict_queue_and_an_infinite_share_are_named() -> None:
    """The share has no number, because nothing is left of the resource."""
    ahead = QueueAhead("namespace/ml", "share", 1, 0, None, "nvidia.com/gpumem")
    queue = PodQueue("s", 1, 0, 0.5, "cpu", 1.0, rank=2, waiting=2, ahead=ahead, is_behind_first=True)
    about, order = explanation_lines.of_queue(Explanation(TEAM, "a", "waits", "", gpu_queue=queue))
    assert about == "queue: GpuQueue s, weight 1, share 0.50 of cpu, entitled to 1.00"
    assert order == (
        "order: 2nd of 2 waiting pods; namespace ml is before it with an infinite share of nvidia.com/gpumem;"
        " an older pod of its queue has to be placed first (StrictFIFO)"
    )


def test_the_limits_of_a_queue_are_shown_by_its_command() -> None:
    """Those of the namespace by another one."""
    made = site(charged("a", memory=500, queue="team-b"))
    made.limits.set_queue(gpu_queue("team-b", limits={"nvidia.com/gpumem": 800}))
    lines = printed(evaluator(made).explain(waiting("b", queue="team-b")))
    assert lines[3] == (
        "GpuQueue team-b limits nvidia.com/gpumem to 800: 500 used, 700 requested; see 'kubectl gpu queues -o wide'"
    )


def test_the_limits_of_a_quota_are_shown_by_its_command() -> None:
    """The object that binds is named."""
    made = site()
    made.limits.set_gpu_quota(gpu_quota("tight", total={"limits": {"nvidia.com/gpumem": 600}}))
    lines = printed(evaluator(made).explain(pod("b", memory=700)))
    limits = "GpuQuota tight limits nvidia.com/gpumem to 600: 0 used, 700 requested"
    assert f"{limits}; see 'kubectl gpu quota -n default'" in lines


def test_the_remedy_of_a_queue_that_takes_no_pods_is_a_hint() -> None:
    """The first line has the reason, in the words of the event."""
    made = site()
    made.limits.set_queue(gpu_queue("halted", suspended=True))
    lines = printed(evaluator(made).explain(waiting("a", queue="halted")))
    assert lines[0].startswith("pod default/a waits: QueueSuspended: GpuQueue halted is suspended")
    assert any(line.startswith("hint: an administrator resumes the queue by: kubectl patch") for line in lines)


QUEUED = {"metadata": {"name": "team-a"}, "spec": {"weight": 3, "namespaceSelector": {}}}


@contextmanager
def api_server(*, queues: list[Any], status: int = 200) -> Iterator[tuple[Session, dict[str, str]]]:
    """A session with an API server that has GpuQueues and nothing else; and the selector of each read, by path."""
    selectors: dict[str, str] = {}

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        url = urlsplit(request.path)
        selectors[url.path] = parse_qs(url.query).get("fieldSelector", [""])[0]
        if url.path == GPU_QUEUES.path() and status != 200:
            return status, b"{}"
        items = queues if url.path == GPU_QUEUES.path() else []
        return 200, json.dumps({"metadata": {}, "items": items}).encode()

    with serving(respond) as url:
        access = Access(url, None, "", {}, "default", "test")
        yield Session(Client(access), "default", access), selectors


@pytest.mark.parametrize(("queues", "reads_waiting"), [([QUEUED], True), ([], False)])
def test_pods_that_wait_are_read_if_there_are_gpu_queues(queues: list[Any], reads_waiting: bool) -> None:  # noqa: FBT001
    """A large fleet has many of them, and without queues nothing depends on them."""
    with api_server(queues=queues) as (session, selectors):
        made = scheduler_state.read(session, Rules())
    assert len(made.fair_share.queues) == len(queues)
    assert ("spec.nodeName!=" not in selectors[PODS.path()]) is reads_waiting


def test_every_kind_of_the_state_is_read() -> None:
    """As the scheduler watches them; PriorityClasses concern planned pods, and DeviceClasses kube-scheduler."""
    with api_server(queues=[]) as (session, selectors):
        scheduler_state.read(session, Rules(gangs=GangSettings(pod_groups=True)))
    rows = kinds.needed(
        has_storage=True, has_bindings=False, has_foreign_drivers=True, has_pod_groups=True, with_images=False
    )
    left_out = (kinds.PRIORITY_CLASSES, kinds.DEVICE_CLASSES)
    assert set(selectors) == {each.resource.path(namespace=each.namespace) for each in rows if each not in left_out}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (404, "resource gpuqueues.gpu.scheduling is not defined in this cluster"),
        (403, "list gpuqueues of the whole cluster is forbidden"),
    ],
)
def test_without_the_resource_or_the_right_pods_are_evaluated_without_queues(
    status: int, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note says so; an older installation lacks the resource, and older roles the right."""
    with api_server(queues=[], status=status) as (session, _):
        made = scheduler_state.read(session, Rules())
    assert not made.fair_share.queues
    assert capsys.readouterr().err == f"note: {cause}: the result is that of a cluster without GpuQueues\n"
