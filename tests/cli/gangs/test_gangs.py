"""The rows of `kubectl gpu gangs`, put together from what an API server shows, or as the scheduler says."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from cli import arguments
from cli.errors import CommandError
from cli.gangs import gangs, tables
from cli.kube import scheduler_api
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cluster.resource import GPU_CLAIMS, POD_GROUPS, PODS
from scheduler.api.gang_types import GangMember, GangsView, GangView, MemberCard
from tests.cli.support.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

NOTE = "1 of the 2 pods that gang default/train needs have a place; pod default/train-1: no available node"
ALLOCATION = {"v": 1, "node": "n1", "containers": {"main": [{"uuid": "GPU-a", "index": 3, "memoryMiB": 9, "cores": 0}]}}


def pod(name: str, gang: str = "train", *, node: str = "", **more: Any) -> dict[str, Any]:
    """Return a pod of a gang of two, as the API server shows it."""
    annotations = {"gpu.scheduling/gang-min-members": "2", "gpu.scheduling/gang-timeout": "10m"}
    condition = {"type": "PodScheduled", "status": "False", "message": NOTE}
    if node:
        annotations["gpu.scheduling/allocation"] = json.dumps(ALLOCATION)
        condition["status"] = "True"
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"gpu.scheduling/gang": gang},
            "annotations": annotations,
            **more,
        },
        "spec": {
            "schedulerName": "tranche",
            "nodeName": node,
            "containers": [
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9"}}}
            ],
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": [condition]},
    }


class Server:
    """An API server with objects by path, which may refuse a path; and the requests that it received."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Any]] = {}
        self.refused: dict[str, int] = {}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []

    def respond(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        """Return a list."""
        url = urlsplit(request.path)
        self.asked.append((url.path, parse_qs(url.query)))
        if url.path in self.refused:
            return self.refused[url.path], b"{}"
        return 200, json.dumps({"metadata": {}, "items": self.objects.get(url.path, [])}).encode()


@pytest.fixture
def server() -> Server:
    """One with a gang that is partial, in namespace default."""
    made = Server()
    made.objects[PODS.path(namespace="default")] = [pod("train-0", node="n1"), pod("train-1"), pod("new", "other")]
    return made


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    """A session with the server."""
    with serving(server.respond) as url:
        access = Access(url, None, "", {}, "default", "test")
        yield Session(Client(access), "default", access)


def printed(session: Session, capsys: pytest.CaptureFixture[str], *typed: str) -> list[str]:
    """Run the command, and return its lines."""
    assert gangs.run(session, arguments.parse(["gangs", *typed])) == 0
    return capsys.readouterr().out.splitlines()


def test_each_gang_has_a_row(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is that of the condition of the pod that waits."""
    head, other, train = printed(session, capsys, "-o", "wide")
    assert head.split() == [
        "NAMESPACE",
        "GANG",
        "STATE",
        "PLACED",
        "SIZE",
        "WAITING",
        "AGE",
        "TIMEOUT",
        "PAUSE",
        "BLOCK",
        "MESSAGE",
    ]
    assert other.split()[:6] == ["default", "other", "Incomplete", "0", "2", "1"]
    assert train.split()[:6] == ["default", "train", "Partial", "1", "2", "1"]
    assert train.split()[6].endswith("d")
    assert train.split()[7:10] == ["600s", "<none>", "<none>"]
    assert train.endswith(NOTE)
    assert printed(session, capsys)[0].split() == [
        "NAMESPACE",
        "GANG",
        "STATE",
        "PLACED",
        "SIZE",
        "WAITING",
        "AGE",
        "MESSAGE",
    ]


def test_with_a_name_each_pod_has_a_row(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """Its node and its cards, or why it waits."""
    lines = printed(session, capsys, "train", "-o", "wide")
    about, timeout, blank, head, first, second = lines
    assert (about, timeout, blank) == ("gang default/train: Partial, 1 of 2 pods have nodes", "timeout: 600s", "")
    assert head.split() == ["POD", "STATE", "NODE", "CARDS", "MESSAGE"]
    assert first.split() == ["train-0", "placed", "n1", "3"]
    assert second.split()[:4] == ["train-1", "waiting", "<none>", "<none>"]
    assert second.endswith(NOTE)


def test_the_gangs_of_all_namespaces_are_shown(
    server: Server, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a name those of that name, without their pods; failed pods are not read, because they do not count."""
    server.objects[PODS.path()] = [pod("a"), pod("b", namespace="ml", uid="b"), pod("c", "other")]
    rows = printed(session, capsys, "train", "-A", "--no-headers")
    assert [row.split()[:2] for row in rows] == [["default", "train"], ["ml", "train"]]
    assert dict(server.asked)[PODS.path()]["fieldSelector"] == ["status.phase!=Failed"]


def test_json_has_the_fields_of_the_api(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """With the pods if a gang is named."""
    text = "\n".join(printed(session, capsys, "train", "-o", "json"))
    (gang,) = msgspec.json.decode(text, type=GangsView).gangs
    assert (gang.state, gang.placed, gang.waiting, gang.message) == ("Partial", 1, 1, NOTE)
    assert [each.pod for each in gang.members] == ["train-0", "train-1"]
    assert gang.members[0].cards == (MemberCard("GPU-a", 3),)


def test_a_claim_names_the_gang_of_its_pods(
    server: Server, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """The claims are read before the pods."""
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"gangRef": "by-claim", "devices": {"count": 1}},
    }
    server.objects[GPU_CLAIMS.path(namespace="default")] = [claim]
    server.objects[PODS.path(namespace="default")] = [pod("a", annotations={"gpu.scheduling/claim": "c"})]
    (row,) = printed(session, capsys, "--no-headers")
    assert row.split()[:2] == ["default", "by-claim"]


def test_a_pod_group_has_the_size_of_its_gang(
    server: Server, session: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where the configuration says that PodGroups count."""
    file = tmp_path / "config.yaml"
    file.write_text("scheduler: {gangs: {pod_groups: true}}\n")
    group = {"metadata": {"name": "grouped", "namespace": "default"}, "spec": {"minMember": 7}}
    server.objects[POD_GROUPS.path(namespace="default")] = [group]
    labels = {"scheduling.x-k8s.io/pod-group": "grouped"}
    server.objects[PODS.path(namespace="default")] = [pod("a", labels=labels, annotations={})]
    (row,) = printed(session, capsys, "--no-headers", "--config", str(file))
    assert row.split()[:6] == ["default", "grouped", "Incomplete", "0", "7", "1"]


def test_an_unknown_gang_is_an_error(session: Session) -> None:
    """The message says where it was looked for, and what shows all of them."""
    with pytest.raises(CommandError, match="gang ghost does not exist in namespace default; 'kubectl gpu gangs -A'"):
        gangs.run(session, arguments.parse(["gangs", "ghost"]))


def test_no_gang_is_a_note(server: Server, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """The table is empty, and the exit code 0."""
    server.objects.clear()
    assert gangs.run(session, arguments.parse(["gangs"])) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert shown.err.endswith("note: no pod belongs to a gang in namespace default\n")


def test_without_the_right_to_read_pods_the_scheduler_is_asked(server: Server, session: Session) -> None:
    """It requires a token; in all namespaces nothing can be asked instead."""
    server.refused = {PODS.path(namespace="default"): 403, PODS.path(): 403}
    with pytest.raises(CommandError, match=r"list pods in namespace default: forbidden.* the scheduler was asked"):
        gangs.run(session, arguments.parse(["gangs"]))
    with pytest.raises(CommandError, match="list pods of the whole cluster: forbidden"):
        gangs.run(session, arguments.parse(["gangs", "-A"]))


def test_all_pages_of_the_scheduler_are_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page names the gang after which the next one begins."""
    asked: list[dict[str, list[str]]] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        url = urlsplit(request.path)
        if not url.path.endswith("/gangs"):
            return 404, b"{}"
        asked.append(parse_qs(url.query))
        pages = {"": ("a", "default/a"), "default/a": ("b", "")}
        name, following = pages[asked[-1].get("after", [""])[0]]
        gang = GangView("default", name, "Waiting", size=2, placed=0, waiting=2, succeeded=0)
        return 200, msgspec.json.encode(GangsView((gang,), following))

    with serving(respond) as url:
        access = Access(url, None, "", {"Authorization": "Bearer token"}, "default", "test")
        session = Session(Client(access), "default", access)
        monkeypatch.setattr(scheduler_api, "direct", lambda _: access)
        rows = printed(session, capsys, "--scheduler-url", "https://scheduler", "--no-headers")
        assert [row.split()[1] for row in rows] == ["a", "b"]
        with pytest.raises(CommandError, match="omit -A"):
            gangs.run(session, arguments.parse(["gangs", "-A", "--scheduler-url", "https://scheduler"]))
    assert asked == [{}, {"after": ["default/a"]}]


def test_what_a_gang_pauses_for_and_disagrees_about_is_said() -> None:
    """Only the scheduler knows of a pause."""
    gang = GangView(
        namespace="ml",
        name="train",
        state="Waiting",
        size=4,
        placed=1,
        waiting=3,
        succeeded=1,
        pause_seconds=7.2,
        block="zone",
        disagreement="its pods declare sizes from 3 to 4: the largest counts",
        message="no room",
        members=(GangMember("a", "succeeded", "n1"), GangMember("b", "binding", "n2")),
    )
    assert list(tables.about(gang)) == [
        "gang ml/train: Waiting, 2 of 4 pods have nodes",
        "pauses: it may be decided again in 7s",
        "block: all its nodes must have the same label zone",
        "warning: its pods declare sizes from 3 to 4: the largest counts",
    ]
    (row,) = tables.of_gangs(GangsView((gang,)), now=time.time(), wide=False).rows
    assert row[-1] == "its pods declare sizes from 3 to 4: the largest counts; no room"
    assert [row[1:4] for row in tables.of_members(gang).rows] == [
        ["succeeded", "n1", "<none>"],
        ["binding", "n2", "<none>"],
    ]
