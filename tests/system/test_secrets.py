"""Keys and tokens occur in no log and in no message."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import kubeconfig, kubectl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
SECRET = "tranche-webhook-ca"  # noqa: S105 -- the name of an object
MARK = "c2VjcmV0LW1hcms"


def key_material(layout: Layout) -> Iterator[str]:
    """Yield parts of private keys: the webhook's, as PEM and as encoded in the Secret, and the lab's."""
    encoded = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", SECRET)["data"]["tls.key"]
    yield encoded[40:]
    keys = [base64.b64decode(encoded).decode(), *(path.read_text() for path in layout.pki.rglob("*.key"))]
    for key in keys:
        yield from (line for line in key.splitlines() if not line.startswith("-----") and len(line) > 32)


def tokens(layout: Layout) -> Iterator[str]:
    """Yield the signature of every token that the lab has issued; without it a token is useless."""
    for path in layout.component_kubeconfigs.iterdir():
        user = yaml.safe_load(path.read_text())["users"][0]["user"]
        if "token" in user:
            yield user["token"].rsplit(".", 1)[1]


def test_no_log_contains_a_key_or_a_token(tranche: Layout) -> None:
    """This covers the logs of the product and of Kubernetes and the audit log, at the end of the whole run."""
    secrets = [*key_material(tranche), *tokens(tranche)]
    assert len(secrets) > 10
    logs = [path for path in tranche.logs.rglob("*") if path.is_file()]
    assert {"webhook.log", "scheduler.log", "agent.log", "audit.log"} <= {path.name for path in logs}
    for log in logs:
        text = log.read_text(errors="replace")
        assert "PRIVATE KEY" not in text, log
        assert base64.b64encode(b"PRIVATE KEY").decode()[:12] not in text, log
        assert [each for each in secrets if each in text] == [], log


@pytest.fixture
def broken_secret(tranche: Layout) -> Iterator[Layout]:
    """The webhook's Secret with an invalid key; the valid key is restored after the test."""
    of = ("-n", SYSTEM_NAMESPACE, "patch", "secret", SECRET, "--type=merge", "-p")
    right = kubectl.get(tranche, "-n", SYSTEM_NAMESPACE, "secret", SECRET)["data"]["tls.key"]
    patch = '{"data": {"tls.key": "%s"}}'
    kubectl.run(tranche, *of, patch % base64.b64encode(MARK.encode()).decode())
    yield tranche
    kubectl.run(tranche, *of, patch % right)


def run(layout: Layout, *arguments: str, config: Path) -> str:
    """Run a command, which must fail or still be retrying after 5 s; return its output."""
    command = [sys.executable, "-m", *(part.format(fleet=layout.config / "fleet.yaml") for part in arguments)]
    environment = {**os.environ, "KUBECONFIG": str(config)}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=15, env=environment
        )
    except subprocess.TimeoutExpired as still_trying:
        return (still_trying.stdout or b"").decode()
    assert done.returncode
    return done.stdout.decode()


def test_invalid_key_is_not_printed(broken_secret: Layout) -> None:
    """The message names the Secret and the field, but not the value."""
    output = run(broken_secret, "certs", "ensure", config=broken_secret.kubeconfig)
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
    output = run(tranche, *command, config=config)
    assert "Unauthorized" in output or "credentials" in output
    assert MARK not in output
