"""Requests to the scheduler for users with rights in one namespace, and the errors that they see."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.__main__ import main
from cli.kube import scheduler_version
from cluster import version
from cluster.version import Version
from scheduler.api.explanation_types import Explanation
from scheduler.api.namespaced.paths import PROXY, TOKEN_HEADER
from scheduler.api.namespaced.shares_types import NamespaceShares
from tests.cli.support.http_server import serving

TOKEN = "ey.my.token"  # noqa: S105 -- not a real one
FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": "not for you"}
POD = {"metadata": {"name": "web", "namespace": "team", "uid": "1"}, "spec": {"containers": []}}
WAITS = Explanation("team", "web", "waits", "waits: no node")

Responses = dict[str, list[tuple[int, Any]]]


class ApiServer:
    """A server that sends the responses of a path in order, then repeats the last; other paths are forbidden."""

    def __init__(self, folder: Path) -> None:
        self.responses: Responses = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""
        self.kubeconfig = folder / "config"
        self.user: dict[str, Any] = {"token": TOKEN}

    def respond(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        """Record a request and return its response."""
        self.requests.append((request.path, dict(request.headers)))
        left = self.responses.get(request.path.partition("?")[0], [(403, FORBIDDEN)])
        status, body = left.pop(0) if len(left) > 1 else left[0]
        return status, msgspec.json.encode(body)

    def write(self) -> None:
        """Write the kubeconfig."""
        content = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": self.user}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    """A server for one test."""
    made = ApiServer(tmp_path)
    with serving(made.respond) as made.url:
        made.write()
        yield made


Run = Callable[..., int]


@pytest.fixture
def run(server: ApiServer) -> Run:
    """Run `kubectl gpu` in this process."""
    return lambda *arguments: main([*arguments, "--kubeconfig", str(server.kubeconfig)])


EXPLANATION = f"{PROXY}/api/namespaces/team/pods/web/explanation"
SHARES = f"{PROXY}/api/namespaces/team/shares"
VERSION = f"{PROXY}/version"
_QUEUE: dict[str, Any] = {
    "reclaim": "Never",
    "excessCards": -2.0,
    "exists": True,
    "priority": 0,
    "limits": {"nvidia.com/gpu": 8},
    "maxInstances": None,
    "weightedShare": 0.0,
    "overused": False,
    "underused": False,
}
_OURS = {
    "name": "ours",
    "weight": 3,
    "suspended": False,
    "allocated": {"nvidia.com/gpu": 2},
    "share": 0.25,
    "dominantResource": "nvidia.com/gpu",
    "entitlement": 0.5,
    "running": 1,
    "waiting": 2,
    "next": ["team/a"],
}
_NOTHING = {"allocated": {}, "share": 0.0, "dominantResource": "", "entitlement": 0.0, "running": 0, "waiting": 0}
_SPARE = {"name": "spare", "weight": 1, "suspended": True, "next": [], "redacted": True, **_NOTHING}
QUEUES = {"fairSharing": True, "queues": [{**_QUEUE, **_OURS}, {**_QUEUE, **_SPARE}]}


def test_standby_replicas_are_retried(server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The proxy picks a random replica: 503 and 429 are retried; the token is in the scheduler's own header."""
    standby = (503, {"error": "this replica does not decide"})
    server.responses = {
        "/api/v1/namespaces/team/pods/web": [(200, POD)],
        EXPLANATION: [standby, (429, {"error": "busy"}), standby, (200, WAITS)],
    }
    assert run("explain", "web", "--node", "n1") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("pod team/web waits: no node")
    assert (
        "note: list gpunodestatuses of the whole cluster is forbidden, so the scheduler was asked instead;" in shown.err
    )
    asked = [headers for path, headers in server.requests if path == f"{EXPLANATION}?node=n1"]
    assert [headers[TOKEN_HEADER] for headers in asked] == [TOKEN] * 4


def test_token_header_is_sent_only_to_the_scheduler(server: ApiServer, run: Run) -> None:
    """The API server reads the token from Authorization."""
    server.responses = {SHARES: [(200, NamespaceShares("team", ()))]}
    assert run("top") == 0
    for path, headers in server.requests:
        assert (TOKEN_HEADER in headers) == (path == SHARES)


def test_queues_are_asked_of_the_scheduler(server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """With rights in one namespace; what other teams have is hidden, and what all may know is not."""
    server.responses = {f"{PROXY}/api/namespaces/team/queues": [(200, QUEUES)]}
    assert run("queues", "-n", "team", "-o", "wide") == 0
    shown = capsys.readouterr()
    _, ours, spare = (line.split() for line in shown.out.splitlines())
    assert ours == [
        *("ours", "3", "0", "##........", "0.25", "0.50", "-2.0", "1", "2", "team/a"),
        *("nvidia.com/gpu", "nvidia.com/gpu=2/8", "no", "Never"),
    ]
    assert spare == ["spare", "1", "0", *["<hidden>"] * 7, "nvidia.com/gpu=?/8", "yes", "Never"]
    assert "note: GpuQueue spare is suspended" in shown.err
    assert run("queues", "ours", "-o", "name") == 0
    assert capsys.readouterr().out == "gpuqueue.gpu.scheduling/ours\n"
    assert run("queues", "-A") == 1
    assert "tranche-viewer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((("top",), {"token": TOKEN}), "the scheduler refused the request (403): not for you"),
        ((("top",), {}), '--token "$(kubectl create token SERVICEACCOUNT -n team)"'),
        ((("top", "--as", "somebody"), {"token": TOKEN}), "so --as is not supported: omit it, or use --token"),
        ((("top", "--watch"), {"token": TOKEN}), "--watch reads from the API server"),
        ((("top", "--scheduler-url", "http://tranche.example"), {"token": TOKEN}), "is not an https:// URL"),
    ],
)
def test_failed_request_names_the_next_step(
    server: ApiServer,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    call: tuple[tuple[str, ...], dict[str, Any]],
    message: str,
) -> None:
    """The error is one line; it includes the missing right if that is why the scheduler was asked."""
    arguments, server.user = call
    server.write()
    assert run(*arguments) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n"), message in shown.err) == ("", 1, True), shown.err


def test_token_flag_overrides_the_kubeconfig(server: ApiServer, run: Run) -> None:
    """The flag works as in kubectl."""
    server.responses = {SHARES: [(200, NamespaceShares("team", ()))]}
    assert run("top", "--token", "another") == 0
    assert [headers[TOKEN_HEADER] for path, headers in server.requests if path == SHARES] == ["another"]
    assert {headers["Authorization"] for _, headers in server.requests} == {"Bearer another"}


def test_unknown_kind_is_refused(server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists the kinds with pods."""
    assert run("explain", "svc/web") == 1
    assert "svc is not a kind with pods; the kinds are pod, deploy" in capsys.readouterr().err


def test_version_shows_both_versions(server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """As `kubectl version` does; no token is sent to the scheduler, so every user may ask."""
    server.responses = {VERSION: [(200, Version("0.1.7"))]}
    mine = version.own().version
    assert run("version") == 0
    assert capsys.readouterr() == (f"Client Version: {mine}\nScheduler Version: 0.1.7\n", "")
    assert run("version", "-o", "json") == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert shown == {"clientVersion": mine, "schedulerVersion": "0.1.7"}
    assert all(TOKEN_HEADER not in headers for _, headers in server.requests)


def test_version_of_the_client_needs_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a kubeconfig nor the scheduler is asked for."""
    assert main(["version", "--client", "--kubeconfig", "/nowhere"]) == 0
    assert capsys.readouterr() == (f"Client Version: {version.own().version}\n", "")


def test_version_without_a_scheduler_fails(server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The version of the client is still printed, and the error names the next step."""
    server.responses = {VERSION: [(503, {"message": "no endpoints available"})]}
    assert run("version") == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("Client Version: ")
    assert shown.err.startswith("error: the scheduler did not return its version (503): no endpoints available; check")


@pytest.mark.parametrize(
    ("mine", "scheduler", "skewed"),
    [
        ("0.3.0", "0.3.9", False),
        ("0.3.0", "0.4.0", False),
        ("0.3.0", "0.2.5", False),
        ("0.3.0", "0.5.0", True),
        ("0.3.0", "0.1.0", True),
        ("1.0.0", "0.9.0", True),
        ("0.3.0", "unknown", False),
    ],
)
def test_one_minor_version_of_difference_is_supported(mine: str, scheduler: str, *, skewed: bool) -> None:
    """As between kubectl and the API server."""
    assert scheduler_version.is_skewed(mine, scheduler) == skewed


@pytest.mark.parametrize("theirs", [Version("9.9.0"), version.own()], ids=lambda each: each.version)
def test_commands_warn_of_another_version(
    server: ApiServer, run: Run, capsys: pytest.CaptureFixture[str], theirs: Version
) -> None:
    """The warning is on standard error, once, and the command succeeds."""
    server.responses = {SHARES: [(200, NamespaceShares("team", ()))], VERSION: [(200, theirs)]}
    assert run("top") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == (theirs.version == "9.9.0")
    assert all("the scheduler 9.9.0" in line for line in warnings)


def test_requests_name_the_program(server: ApiServer, run: Run) -> None:
    """The audit log of the API server tells `kubectl gpu` from other clients of the same user."""
    run("explain", "web")
    assert {headers["User-Agent"] for _, headers in server.requests} == {"kubectl-gpu"}
