"""Whatever goes wrong on the way to the API server is one line and code 1, never a traceback."""

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cli import process
from cli.__main__ import main
from lab.kubeconfig import token_kubeconfig
from lab.layout import Layout

ROOT = Path(__file__).parents[2]
NO_TOKEN = "ey.old.token"  # noqa: S105 -- nobody believes it

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
    """Answer every request with one status and body; the kubeconfig for it is answered."""
    servers = []

    def start(status: int, body: bytes) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return _kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _said(capfd: pytest.CaptureFixture[str]) -> str:
    told = capfd.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("error: ")
    return told.err


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "what the server answered is no GpuNodeStatus"),
        (401, b"{}", "does not accept the credentials of context here (401): they may have expired; log in again"),
        (404, b"{}", "Tranche is not installed here; apply manifests/base"),
        (429, b"{}", "429"),
        (503, b"upstream is gone", "503 Unknown: upstream is gone"),
    ],
)
def test_an_answer_that_is_none(
    serve: Serve, status: int, body: bytes, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is no answer of an API server, or refuses, is said with the next step where there is one."""
    assert main(["top", "--kubeconfig", serve(status, body)]) == 1
    assert said in _said(capfd)


def test_nobody_listens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The address and the context are named."""
    assert main(["top", "--kubeconfig", _kubeconfig(tmp_path / "config", "https://127.0.0.1:1")]) == 1
    said = _said(capfd)
    assert "the API server https://127.0.0.1:1 cannot be reached: Connection refused" in said
    assert "check the server of context here" in said


def test_a_defect_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Even what nobody foresaw is no traceback; the line says where to look."""

    def fail(_: object) -> int:
        raise KeyError("x")

    monkeypatch.setattr(process, "_run", fail)
    assert main(["top"]) == 1
    assert "unexpected KeyError in test_failures.py:" in _said(capfd)


def test_a_reader_that_went_away_is_no_error() -> None:
    """As with `head`: code 141, and nothing on standard error."""
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
def test_an_expired_token(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a real API server says to a token that it does not believe."""
    file = token_kubeconfig(team, tmp_path / "config", token=NO_TOKEN, user="me")
    assert main(["top", "--kubeconfig", str(file)]) == 1
    assert "does not accept the credentials of context tranche-lab (401)" in _said(capfd)


@pytest.mark.apiserver
def test_a_certificate_of_another_authority(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is sent to a server that cannot prove itself."""
    assert main(["top", "--kubeconfig", _kubeconfig(tmp_path / "config", team.server)]) == 1
    assert "shows a certificate that does not fit the kubeconfig" in _said(capfd)


@pytest.mark.apiserver
def test_another_name_and_a_client_certificate(team: Layout, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`tls-server-name` is what the certificate is checked for; the administrator's own certificate is shown."""
    content = yaml.safe_load(team.kubeconfig.read_text())
    for name, code in (("kubernetes.default.svc", 0), ("elsewhere.example.com", 1)):
        content["clusters"][0]["cluster"]["tls-server-name"] = name
        (tmp_path / "config").write_text(yaml.safe_dump(content))
        assert main(["top", "--kubeconfig", str(tmp_path / "config"), "-o", "name"]) == code
    assert "elsewhere.example.com" in capfd.readouterr().err


@pytest.mark.apiserver
def test_impersonation(team: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    """`--as` asks with somebody else's rights."""
    line = ["top", "--kubeconfig", str(team.kubeconfig), "--as", "system:serviceaccount:cli-team:stranger"]
    assert main(line) == 1
    assert 'User "system:serviceaccount:cli-team:stranger" cannot list resource "gpunodestatuses"' in _said(capfd)
