"""Concurrent creation of the authority, which a real API server serialises, and the command's errors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from certs import authority_secret
from certs.authority_reconciler import AuthorityReconciler
from cluster.api import Api
from cluster.connect import connect
from lab import kubectl, manifests
from lab.client import client

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

REPLICAS = 8


@pytest.fixture(scope="module")
def installed(control_plane: Layout) -> Layout:
    """Return the suite's cluster with our manifests applied."""
    manifests.install(control_plane)
    return control_plane


async def test_racing_replicas_create_one_authority(installed: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """All find the Secret missing and create it: the API server accepts the first, and all sign with it."""
    monkeypatch.setattr(authority_secret, "SECRET", "tranche-webhook-ca-race")
    now = datetime.now(UTC)
    async with connect(program="tranche-test", kubeconfig=str(installed.kubeconfig)) as connection:
        replicas = [
            AuthorityReconciler(Api(connection), configuration="tranche", settle_seconds=0) for _ in range(REPLICAS)
        ]
        found = await asyncio.gather(*(replica.ensure_secret(now=now) for replica in replicas))
    assert len({each.signing.certificate for each in found}) == 1
    client(installed).delete("secret", "tranche-webhook-ca-race", namespace="tranche-system")


def test_command_with_a_broken_secret_exits_with_the_remedy(installed: Layout) -> None:
    """Exit code 1 and the error on standard error; the remedy that it names works."""
    assert _certs(installed, "ensure").returncode == 0
    broken = json.dumps({"data": {"tls.key": "eA=="}})
    kubectl.run(installed, "-n", "tranche-system", "patch", "secret", "tranche-webhook-ca", "-p", broken)
    done = _certs(installed, "ensure")
    assert done.returncode == 1
    assert 'Secret tranche-system/tranche-webhook-ca: data["tls.key"]' in done.stderr
    assert "Traceback" not in done.stderr
    remedy = "kubectl -n tranche-system delete secret tranche-webhook-ca"
    assert remedy in done.stderr
    kubectl.run(installed, *remedy.split()[1:])
    assert _certs(installed, "ensure").returncode == 0


def _certs(layout: Layout, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "certs", command, "--kubeconfig", str(layout.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
