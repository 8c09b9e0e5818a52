"""`python -m certs` as a process."""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import yaml

from cluster.version import own
from tests.cli.support.http_server import serving


def test_command_names_itself_to_the_api_server(tmp_path: Path) -> None:
    """The records of the API server tell it from the webhook, which has the same rights."""
    senders: list[str | None] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        senders.append(request.headers["User-Agent"])
        return 403, b'{"kind": "Status", "reason": "Forbidden", "message": "not for you"}'

    with serving(respond) as url:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "none"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(content))
        command = [sys.executable, "-m", "certs", "show", "--kubeconfig", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "not for you" in done.stderr
    assert set(senders) == {f"tranche-certs/{own().version}"}
