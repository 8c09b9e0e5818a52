"""Every failed request is a one-line error with exit code 1, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from cli import process
from cli.__main__ import main
from lab.kubeconfig import token_kubeconfig
from lab.layout import Layout
from tests.cli.support.http_server import serving

ROOT = Path(__file__).parents[2]
NO_TOKEN = "ey.old.token"  # noqa: S105 -- not a valid one

Serve = Callable[[int, bytes], str]


def _kubeconfig(path: Path, server: str) -> str:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server that sends the same response to every request; returns its kubeconfig."""
    with ExitStack() as servers:

        def start(status: int, body: bytes) -> str:
            url = servers.enter_context(serving(lambda _: (status, body)))
            return _kubeconfig(tmp_path / "config", url)

        yield start


def _error(capfd: pytest.CaptureFixture[str]) -> str:
    captured = capfd.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("error: ")
    return captured.err


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>", "the server's response is not a GpuNodeStatus"),
        (401, b"{}", "does not accept the credentials of context here (401): they may have expired; log in again"),
        (404, b"{}", "Tranche is not installed in this cluster"),
        (429, b"{}", "429"),
        (503, b"upstream is gone", "503 Unknown: upstream is gone"),
    ],
)
def test_error_response_is_reported(
    serve: Serve, status: int, body: bytes, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error of an API server, or of another server, is reported with the next step."""
    assert main(["top", "--kubeconfig", serve(status, body)]) == 1
    assert message in _error(capfd)


def test_unreachable_server_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The error has the address and the context."""
    assert main(["top", "--kubeconfig", _kubeconfig(tmp_path / "config", "https://127.0.0.1:1")]) == 1
    error = _error(capfd)
    assert "the API server https://127.0.0.1:1 cannot be reached: Connection refused" in error
    assert "check the server of context here" in error


def test_bug_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception is reported with its place, without a traceback."""

    def fail(_: object) -> int:
        raise KeyError("x")

    monkeypatch.setattr(process, "_run", fail)
    assert main(["top"]) == 1
    assert "unexpected KeyError in test_failures.py:" in _error(capfd)


def test_closed_output_is_code_141() -> None:
    """The command ends silently if the reader of its output, such as `head`, has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "cli", "completion", "bash"],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.apiserver
def test_invalid_token_is_reported(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A real API server refuses the token with 401."""
    file = token_kubeconfig(team, tmp_path / "config", token=NO_TOKEN, user="me")
    assert main(["top", "--kubeconfig", str(file)]) == 1
    assert "does not accept the credentials of context tranche-lab (401)" in _error(capfd)


@pytest.mark.apiserver
def test_untrusted_certificate_is_refused(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No request is sent to a server that cannot be verified."""
    assert main(["top", "--kubeconfig", _kubeconfig(tmp_path / "config", team.server)]) == 1
    assert "presents a certificate that the kubeconfig does not trust" in _error(capfd)


@pytest.mark.apiserver
def test_server_name_and_client_certificate(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The server is verified for `tls-server-name`, and the client certificate is presented."""
    content = yaml.safe_load(team.kubeconfig.read_text())
    for name, code in (("kubernetes.default.svc", 0), ("elsewhere.example.com", 1)):
        content["clusters"][0]["cluster"]["tls-server-name"] = name
        (tmp_path / "config").write_text(yaml.safe_dump(content))
        assert main(["top", "--kubeconfig", str(tmp_path / "config"), "-o", "name"]) == code
    assert "elsewhere.example.com" in capfd.readouterr().err


@pytest.mark.apiserver
def test_impersonation(team: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """`--as` sends requests with the rights of another user."""
    line = ["top", "--kubeconfig", str(team.kubeconfig), "--as", "system:serviceaccount:cli-team:stranger"]
    assert main(line) == 1
    assert 'User "system:serviceaccount:cli-team:stranger" cannot list resource "gpunodestatuses"' in _error(capfd)
