"""Keys and tokens stand where they belong, and in no log and no message."""

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
    """Answer what gives a private key away: the webhook's, as PEM and as the API has it, and the lab's own."""
    encoded = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", SECRET)["data"]["tls.key"]
    yield encoded[40:]
    keys = [base64.b64decode(encoded).decode(), *(path.read_text() for path in layout.pki.rglob("*.key"))]
    for key in keys:
        yield from (line for line in key.splitlines() if not line.startswith("-----") and len(line) > 32)


def tokens(layout: Layout) -> Iterator[str]:
    """Answer the signature of every token that the lab gave out: without it the rest of a token is nothing."""
    for path in layout.component_kubeconfigs.iterdir():
        user = yaml.safe_load(path.read_text())["users"][0]["user"]
        if "token" in user:
            yield user["token"].rsplit(".", 1)[1]


def test_no_log_holds_a_key_or_a_token(tranche: Layout) -> None:
    """Of our processes, of Kubernetes' beside them, and the audit log: after all that the run did with them."""
    given_away = [*key_material(tranche), *tokens(tranche)]
    assert len(given_away) > 10
    logs = [path for path in tranche.logs.rglob("*") if path.is_file()]
    assert {"webhook.log", "scheduler.log", "agent.log", "audit.log"} <= {path.name for path in logs}
    for log in logs:
        text = log.read_text(errors="replace")
        assert "PRIVATE KEY" not in text, log
        assert base64.b64encode(b"PRIVATE KEY").decode()[:12] not in text, log
        assert [each for each in given_away if each in text] == [], log


@pytest.fixture
def broken_secret(tranche: Layout) -> Iterator[Layout]:
    """The webhook's Secret with a key that is none; the right one is back when the test is over."""
    of = ("-n", SYSTEM_NAMESPACE, "patch", "secret", SECRET, "--type=merge", "-p")
    right = kubectl.get(tranche, "-n", SYSTEM_NAMESPACE, "secret", SECRET)["data"]["tls.key"]
    patch = '{"data": {"tls.key": "%s"}}'
    kubectl.run(tranche, *of, patch % base64.b64encode(MARK.encode()).decode())
    yield tranche
    kubectl.run(tranche, *of, patch % right)


def run(layout: Layout, *arguments: str, config: Path) -> str:
    """Run one of our commands, which must fail or be trying still after a while; answer what it said."""
    command = [sys.executable, "-m", *(part.format(fleet=layout.config / "fleet.yaml") for part in arguments)]
    environment = {**os.environ, "KUBECONFIG": str(config)}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=5, env=environment
        )
    except subprocess.TimeoutExpired as still_trying:
        return (still_trying.stdout or b"").decode()
    assert done.returncode
    return done.stdout.decode()


def test_a_broken_key_is_not_shown(broken_secret: Layout) -> None:
    """The message names Secret and field; what the field holds is nobody's affair."""
    told = run(broken_secret, "certs", "ensure", config=broken_secret.kubeconfig)
    assert 'data["tls.key"]' in told
    assert MARK not in told
    assert base64.b64encode(MARK.encode()).decode() not in told


@pytest.mark.parametrize(
    "command",
    [
        ("cli", "top"),
        ("certs", "show"),
        ("agent", "--node-name", "gpu-sim-0", "--fleet-file", "{fleet}", "--metrics-port", "0"),
    ],
)
def test_a_refused_token_is_not_shown(tranche: Layout, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A command that the API server does not believe says so without repeating what it showed."""
    config = kubeconfig.token_kubeconfig(tranche, tmp_path / "config", token=MARK, user="nobody")
    told = run(tranche, *command, config=config)
    assert "Unauthorized" in told or "credentials" in told
    assert MARK not in told
