"""The rows and notes of `kubectl gpu queues`, counted from what an API server shows."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from allocation.names import QUEUE
from cli import arguments
from cli.errors import CommandError, MissingRightError
from cli.installation.rules import Rules
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cli.queues import cluster_queues, tables
from cli.queues.queues import run
from cluster.resource import GPU_QUEUES, PODS
from scheduler.api.queue_types import QueuesView
from scheduler.state.cluster_state import ClusterState
from tests.cli.support.http_server import serving
from tests.scheduler.support.builders import namespace, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.queued import charged


def site() -> ClusterState:
    """Return two cards of 1000 MiB, a queue that waits for more, one without pods, and a namespace's own."""
    made = state("n1")
    limits = {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 900}
    made.limits.set_queue(gpu_queue("team-a", weight=3, limits=limits, maxInstances=5))
    made.limits.set_queue(gpu_queue("idle", priority=2, suspended=True))
    made.set_pod(charged("a", memory=500, queue="team-a"))
    made.set_pod(charged("own", memory=60, queue="namespace/default", card=1))
    made.set_pod(pod("next", memory=600, labels={QUEUE: "team-a"}))
    return made


def rows(view: QueuesView, *, wide: bool = False) -> list[dict[str, str]]:
    """Return the rows of the table by column."""
    table = tables.of_queues(view, wide=wide)
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def test_a_row_has_the_share_the_entitlement_and_what_waits() -> None:
    """The wide table adds of what the share is, and the limits with what is held of them."""
    row = {each["NAME"]: each for each in rows(cluster_queues.view(site()), wide=True)}["team-a"]
    assert row == {
        "NAME": "team-a",
        "WEIGHT": "3",
        "PRIORITY": "0",
        "SHARE": "##........ 0.25",
        "ENTITLED": "0.75",
        "BALANCE": "-1.0",
        "RUNNING": "1",
        "WAITING": "1",
        "NEXT": "default/next",
        "DOMINANT": "nvidia.com/gpumem",
        "LIMITS": "nvidia.com/gpu=1/8,nvidia.com/gpumem=500/900,pods=1/5",
        "SUSPENDED": "no",
        "RECLAIM": "Never",
    }
    assert list(rows(cluster_queues.view(site()))[0]) == list(row)[:9]


def test_rows_are_in_the_order_in_which_cards_are_offered() -> None:
    """The tier first, then 0.25 / 3 before 0.125; a namespace's own queue is marked as such."""
    shown = rows(cluster_queues.view(site()))
    assert [each["NAME"] for each in shown] == ["idle", "team-a", "namespace/default"]
    assert shown[0]["NEXT"] == "<none>"


def test_what_queues_with_pods_are_entitled_to_adds_up_to_one() -> None:
    """A queue without pods has in parentheses what it would be entitled to with some: 1 / (1 + 3 + 1)."""
    entitled = {each["NAME"]: each["ENTITLED"] for each in rows(cluster_queues.view(site()))}
    assert entitled == {"idle": "(0.20)", "team-a": "0.75", "namespace/default": "0.25"}


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, ".......... 0.00"),
        (0.001, "#......... 0.00"),
        (0.5, "#####..... 0.50"),
        (0.96, "########## 0.96"),
        (1.7, "########## 1.70"),
        (None, "########## inf"),
    ],
)
def test_the_bar_has_ten_characters(share: float | None, expected: str) -> None:
    """A queue that holds anything has at least one mark, and one with too much no more than ten."""
    assert tables.bar(share) == expected


def test_one_queue_or_those_of_a_namespace_are_chosen() -> None:
    """Its own, of which pods may run that are older than its label; those for it; and that which the label names."""
    made = site()
    made.limits.set_queue(gpu_queue("closed", namespaceSelector={"matchLabels": {"team": "x"}}))
    made.limits.set_namespace(namespace("other", **{QUEUE: "closed"}))
    runs = charged("before-the-label", memory=10, queue="namespace/other")
    runs.metadata.namespace = "other"
    made.set_pod(runs)
    one = cluster_queues.view(made, name="team-a")
    assert [each.name for each in one.queues] == ["team-a"]
    assert [each.name for each in cluster_queues.view(made, name="none").queues] == []
    of_default = {each.name for each in cluster_queues.view(made, namespace="default").queues}
    assert of_default == {"team-a", "idle", "namespace/default"}
    of_other = {each.name for each in cluster_queues.view(made, namespace="other").queues}
    assert of_other == {"team-a", "idle", "closed", "namespace/other"}


def test_notes_name_queues_that_take_no_pods_and_the_labels_that_name_them() -> None:
    """Pods of these namespaces wait, and the queue alone does not show why."""
    made = site()
    made.limits.set_queue(gpu_queue("closed", namespaceSelector={"matchLabels": {"team": "x"}}))
    made.limits.set_namespace(namespace("b-ns", **{QUEUE: "ghost"}))
    made.limits.set_namespace(namespace("a-ns", **{QUEUE: "ghost"}))
    made.limits.set_namespace(namespace("c-ns", **{QUEUE: "closed"}))
    made.limits.set_namespace(namespace("d-ns", **{QUEUE: "team-a"}))
    made.set_pod(pod("lost", memory=10, namespace="a-ns"))
    assert list(cluster_queues.notes(cluster_queues.view(made), made)) == [
        "GpuQueue idle is suspended: 0 pods wait until spec.suspended is false",
        "GpuQueue ghost does not exist: 1 pod waits until it is created",
        "label gpu.scheduling/queue of namespace a-ns,b-ns names GpuQueue ghost, which does not exist",
        "label gpu.scheduling/queue of namespace c-ns names GpuQueue closed, whose namespaceSelector does not match it",
    ]


def test_notes_say_who_owes_whom() -> None:
    """Of two cards team-a is entitled to one and a half, the other to half a one; a queue without pods is owed none."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("team-a", weight=3, reclaim="WithinTier"))
    made.limits.set_queue(gpu_queue("idle"))
    made.set_pod(charged("own", memory=1000, queue="namespace/default"))
    made.set_pod(pod("next", memory=1000, labels={QUEUE: "team-a"}))
    shown = {each["NAME"]: each["BALANCE"] for each in rows(cluster_queues.view(made))}
    assert shown == {"team-a": "-1.5", "namespace/default": "+0.5", "idle": "0"}
    owed = "GpuQueue team-a is owed 1.5 cards and {}; above their entitlement: namespace default (+0.5)"
    assert [*tables.notes(cluster_queues.view(made))] == [owed.format("reclaims (WithinTier)")]
    made.limits.set_queue(gpu_queue("team-a", weight=3))
    assert [*tables.notes(cluster_queues.view(made))] == [owed.format("waits until pods end")]
    made.drop_pod(made.running["uid-own"])
    assert [*tables.notes(cluster_queues.view(made))] == []


def test_a_note_says_when_shares_do_not_determine_the_order() -> None:
    """There is no GpuQueue, or kube-scheduler has the queue."""
    empty = state("n1")
    (note,) = cluster_queues.notes(cluster_queues.view(empty), empty)
    assert note.startswith("no GpuQueue exists: free cards are offered by priority, then age")
    extender = state("n1", has_queue=False)
    extender.limits.set_queue(gpu_queue("team-a"))
    (note,) = cluster_queues.notes(cluster_queues.view(extender), extender)
    assert "extender mode" in note


def test_a_limit_that_limits_nothing_is_a_note_and_not_in_the_table() -> None:
    """What has no effect is not shown as if it had."""
    made = state("n1")
    made.limits.set_queue(gpu_queue("team-a", limits={"nvidia.com/gpu": 8, "nvidia.com/gpus": 4, "cpu": 2}))
    view = cluster_queues.view(made)
    assert [each.limits for each in view.queues] == [{"nvidia.com/gpu": 8}]
    assert [*cluster_queues.notes(view, made)] == [
        'GpuQueue team-a: spec.limits["cpu"] has no effect: use a ResourceQuota of each namespace for cpu',
        'GpuQueue team-a: spec.limits["nvidia.com/gpus"] has no effect: did you mean nvidia.com/gpu?',
    ]


def reading(objects: dict[str, list[Any]], failing: int = 0) -> tuple[Any, list[tuple[str, str]]]:
    """Return a server with these objects by path, which fails for GpuQueues, and the requests that it received."""
    asked: list[tuple[str, str]] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        url = urlsplit(request.path)
        asked.append((url.path, parse_qs(url.query).get("fieldSelector", [""])[0]))
        if failing and url.path == GPU_QUEUES.path():
            return failing, b"{}"
        return 200, json.dumps({"metadata": {}, "items": objects.get(url.path, [])}).encode()

    return serving(respond), asked


def session(url: str) -> Session:
    """Return a session with a server."""
    access = Access(url, None, "", {}, "default", "test")
    return Session(Client(access), "default", access)


QUEUED = {"metadata": {"name": "team-a"}, "spec": {"weight": 3, "namespaceSelector": {}}}
WAITS = {
    "metadata": {"name": "waits", "namespace": "default", "uid": "w", "labels": {QUEUE: "team-a"}},
    "spec": {
        "schedulerName": "tranche",
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}


def test_the_cluster_is_read_with_the_pods_that_wait() -> None:
    """Finished pods are not."""
    server, asked = reading({GPU_QUEUES.path(): [QUEUED], PODS.path(): [WAITS]})
    with server as url:
        view = cluster_queues.view(cluster_queues.read(session(url), Rules()))
    (queue,) = view.queues
    assert (queue.name, queue.weight, queue.waiting, queue.next) == ("team-a", 3, 1, ("default/waits",))
    assert dict(asked)[PODS.path()] == "status.phase!=Succeeded,status.phase!=Failed"


def test_a_cluster_without_the_resource_is_an_error() -> None:
    """The command has nothing to show; the message has the next step."""
    server, _ = reading({}, failing=404)
    with server as url, pytest.raises(CommandError, match=r"gpuqueues.gpu.scheduling is not defined in this cluster"):
        cluster_queues.read(session(url), Rules())


def test_a_missing_right_is_an_error() -> None:
    """The message names the role."""
    server, _ = reading({}, failing=403)
    with server as url, pytest.raises(MissingRightError, match="list gpuqueues of the whole cluster: forbidden"):
        cluster_queues.read(session(url), Rules())


@pytest.mark.parametrize("output", ["table", "json", "name"])
def test_the_command_prints_each_format(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes go to standard error, and only with the formats for people."""
    server, _ = reading({GPU_QUEUES.path(): [{**QUEUED, "spec": {"suspended": True}}]})
    with server as url:
        assert run(session(url), arguments.parse(["queues", "-o", output])) == 0
    printed = capsys.readouterr()
    assert ("GpuQueue team-a is suspended" in printed.err) is (output == "table")
    if output == "json":
        view = msgspec.json.decode(printed.out, type=QueuesView)
        assert view.fair_sharing
        assert [each.suspended for each in view.queues] == [True]
    elif output == "name":
        assert printed.out == "gpuqueue.gpu.scheduling/team-a\n"
    else:
        assert printed.out.split()[:9] == [
            "NAME",
            "WEIGHT",
            "PRIORITY",
            "SHARE",
            "ENTITLED",
            "BALANCE",
            "RUNNING",
            "WAITING",
            "NEXT",
        ]


def test_a_queue_that_does_not_exist_is_an_error() -> None:
    """A name that is wrong does not print an empty table."""
    server, _ = reading({})
    with server as url, pytest.raises(CommandError, match="queue ghost does not exist"):
        run(session(url), arguments.parse(["queues", "ghost"]))
