"""Keys and tokens occur in no log and in no message."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allocation.names import SYSTEM_NAMESPACE
from lab import kubeconfig, wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.system.support import whole_run
from tests.system.support.whole_run import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
MARK = "c2VjcmV0LW1hcms"


def test_no_log_contains_a_key_or_a_token(tranche: Layout) -> None:
    """In the logs so far of the product and of Kubernetes; in those of the whole run, when the lab ends."""
    assert whole_run.leaks(tranche, [*whole_run.key_material(tranche), *whole_run.tokens(tranche)]) == []


@pytest.fixture
def broken_secret(tranche: Layout) -> Iterator[Layout]:
    """The webhook's Secret with an invalid key; the valid key is restored after the test."""
    api = client(tranche)
    before = api.get("secret", SECRET, namespace=SYSTEM_NAMESPACE)["data"]["tls.key"]

    def write(key: str) -> None:
        api.patch("secret", SECRET, {"data": {"tls.key": key}}, namespace=SYSTEM_NAMESPACE)

    write(base64.b64encode(MARK.encode()).decode())
    yield tranche
    write(before)


def run(layout: Layout, *arguments: str, config: Path, until: str = "") -> str:
    """Run a command until it fails or, if it tries again and again, until it has printed a text; return its output."""
    command = [sys.executable, "-m", *(part.format(fleet=layout.config / "fleet.yaml") for part in arguments)]
    output = config.with_name("output")
    with output.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "KUBECONFIG": str(config)}
        )

    def is_seen() -> bool:
        return process.poll() is not None or bool(until and until in output.read_text())

    try:
        wait.until(is_seen, what=f"the error of {arguments[0]}", timeout_s=PATIENCE_S)
    finally:
        process.kill()
    assert process.wait()
    return output.read_text()


def test_invalid_key_is_not_printed(broken_secret: Layout, tmp_path: Path) -> None:
    """The message names the Secret and the field, but not the value."""
    config = Path(shutil.copy(broken_secret.kubeconfig, tmp_path / "config"))
    output = run(broken_secret, "certs", "ensure", config=config)
    assert 'data["tls.key"]' in output
    assert MARK not in output
    assert base64.b64encode(MARK.encode()).decode() not in output


@pytest.mark.parametrize(
    "command",
    [
        ("cli", "top"),
        ("certs", "show"),
        ("agent", "--node-name", "gpu-sim-0", "--fleet-file", "{fleet}", "--metrics-port", "0"),
    ],
)
def test_rejected_token_is_not_printed(tranche: Layout, tmp_path: Path, command: tuple[str, ...]) -> None:
    """The error of a command whose token the API server rejects does not contain the token."""
    config = kubeconfig.token_kubeconfig(tranche, tmp_path / "config", token=MARK, user="nobody")
    output = run(tranche, *command, config=config, until="Unauthorized")
    assert "Unauthorized" in output or "credentials" in output
    assert MARK not in output
