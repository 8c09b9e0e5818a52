"""`kubectl gpu resize` against an API server that has one pod; tests/system/test_resize.py has a real one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, RESIZE, RESIZED
from allocation.wire import record
from cli.__main__ import main
from tests.cli.support.http_server import kubeconfig, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

PATH = "/api/v1/namespaces/team/pods/p"


def allocated(*sizes: tuple[int, int]) -> str:
    """Return the allocation of containers c0, c1, … that share a card."""
    return record.encode(Allocation("n1", {f"c{n}": (CardShare("GPU-0", 0, *size),) for n, size in enumerate(sizes)}))


class Server:
    """The API server, and the scheduler behind its proxy.

    Attributes:
        annotations: those of the pod.
        grants: the allocation that the scheduler writes once there is a wish; None if it writes none.
        conflicts: how many writes meet another change.
        answer: what the scheduler answers to the question of a dry run.
        asked: the bodies of these questions.
    """

    def __init__(self, *sizes: tuple[int, int]) -> None:
        self.annotations: dict[str, str] = {ALLOCATION: allocated(*sizes)} if sizes else {}
        self.grants: str | None = None
        self.conflicts = 0
        self.answer: dict[str, Any] = {}
        self.asked: list[Any] = []

    def respond(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        """Return the response to a request."""
        path = urlsplit(request.path).path
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if path.endswith("/adjustment"):
            self.asked.append(json.loads(body))
            return 200, json.dumps(self.answer).encode()
        if path != PATH:
            return 404, b"{}"
        if request.command == "PATCH":
            if self.conflicts:
                self.conflicts -= 1
                return 409, b'{"reason":"Conflict"}'
            self.annotations |= json.loads(body)["metadata"]["annotations"]
            if self.grants is not None:
                self.annotations |= {ALLOCATION: self.grants, RESIZED: "{}"}
        metadata = {"name": "p", "namespace": "team", "resourceVersion": "1", "annotations": self.annotations}
        return 200, json.dumps({"metadata": metadata, "spec": {"nodeName": "n1"}}).encode()


@contextmanager
def cluster(server: Server, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the flags by which a command reaches a server."""
    with serving(server.respond) as url:
        yield ("--kubeconfig", kubeconfig(folder, url, namespace="team", token="t"))  # noqa: S106


def test_the_size_is_written_and_shown_once_the_pod_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where another client changes the pod meanwhile; what is wished for other containers stays."""
    server = Server((100, 100), (200, 200))
    server.annotations[RESIZE] = '{"c1":{"gpumem":300},"c0":{"gpucores":20}}'
    server.grants, server.conflicts = allocated((6000, 400), (200, 200)), 2
    with cluster(server, tmp_path) as flags:
        assert main(["resize", "p", "-c", "c0", "--memory", "6000", "-o", "json", *flags]) == 0
    assert json.loads(server.annotations[RESIZE]) == {"c1": {"gpumem": 300}, "c0": {"gpumem": 6000, "gpucores": 20}}
    assert json.loads(capsys.readouterr().out) == {
        "namespace": "team",
        "pod": "p",
        "containers": [
            {"name": "c0", "memoryMiB": 6000, "cores": 400, "memoryLimitMiB": 0, "coresLimit": 0},
            {"name": "c1", "memoryMiB": 200, "cores": 200, "memoryLimitMiB": 0, "coresLimit": 0},
        ],
        "pending": True,
    }


def test_a_wish_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    """The scheduler has refused it anyway."""
    server = Server((100, 100))
    server.annotations[RESIZE], server.grants = "{", allocated((50, 100))
    with cluster(server, tmp_path) as flags:
        assert main(["resize", "p", "--memory", "50", "-o", "name", *flags]) == 0
    assert server.annotations[RESIZE] == '{"c0":{"gpumem":50}}'


def test_a_wish_that_is_not_carried_out_in_time_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says where the reason is, and how the wish is withdrawn."""
    server = Server((100, 100))
    with cluster(server, tmp_path) as flags:
        assert main(["resize", "p", "--memory", "50", "--timeout", "0", *flags]) == 1
    error = capsys.readouterr().err
    assert "pod team/p does not have the size yet: see 'kubectl events -n team --for pod/p'" in error
    assert "kubectl annotate -n team pod p gpu.scheduling/resize-" in error


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "name a size: --memory, --cores, or their limits"),
        (("--memory", "0"), 2, "--memory must be at least 1"),
        (("--cores", "101"), 2, "--cores from 0 to 100"),
        (("--memory", "1"), 1, "containers c0, c1 have cards: name one with -c"),
        (("--memory", "1", "-c", "c2"), 1, "container c2 has no cards: those with cards are c0, c1"),
    ],
)
def test_other_command_lines_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    """The error names what is wrong, and what is possible."""
    server = Server((100, 100), (200, 200))
    with cluster(server, tmp_path) as flags:
        assert main(["resize", "p", *arguments, *flags]) == code
    assert words in capsys.readouterr().err
    assert RESIZE not in server.annotations


def test_a_pod_without_cards_has_no_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it has a node, its requests are what it gets."""
    with cluster(Server(), tmp_path) as flags:
        assert main(["resize", "p", "--memory", "1", *flags]) == 1
    assert "pod team/p has no cards yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "error"),
    [
        ({"fits": True, "remaining": {"GPU-0": {"memoryMiB": 900, "cores": 500}}}, 0, ""),
        (
            {
                "fits": False,
                "reason": "ScalingQuotaExceeded",
                "message": "full",
                "remaining": {"GPU-0": {"memoryMiB": 900, "cores": 500}},
            },
            1,
            "pod p: ScalingQuotaExceeded: full",
        ),
    ],
)
def test_a_dry_run_asks_the_scheduler_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: dict[str, Any], code: int, error: str
) -> None:
    """The exit code says whether the size fits, the table what is left."""
    server = Server((100, 100))
    server.answer = answer
    with cluster(server, tmp_path) as flags:
        assert main(["resize", "p", "--memory", "50", "--dry-run", "--no-headers", *flags]) == code
        shown = capsys.readouterr()
        assert shown.out.split() == ["GPU-0", "900", "MiB", "50", "%"]
        assert error in shown.err
        assert main(["resize", "p", "--memory", "50", "--dry-run", "-o", "name", *flags]) == code
    assert capsys.readouterr().out == ("pod/p\n" if code == 0 else "")
    assert server.asked == [{"c0": {"gpumem": 50}}] * 2
    assert RESIZE not in server.annotations
