"""Users do not notice a rotation: the webhook's process, a real API server and a load of pods."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from certs import authority_secret, ca_bundle
from certs.authority_reconciler import AuthorityReconciler
from certs.probe import problem
from certs.rotate import RotationError, rotate
from certs.settings import RotateSettings
from certs.x509 import new_authority
from cluster.api import Api
from cluster.connect import connect
from cluster.resource import SECRETS
from lab.layout import Port
from tests.certs.support import replicas
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
MORE = 50


@pytest.fixture
async def api(installed: Layout) -> AsyncIterator[Api]:
    """Return an administrator's client of the API server."""
    async with connect(program="tranche-test", kubeconfig=str(installed.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
async def replica(installed: Layout, api: Api) -> AsyncIterator[replicas.Replica]:
    """Run a replica that the API server calls; pods are admitted when this yields."""
    running = replicas.Replica(installed, installed.port(Port.WEBHOOK), installed.port(Port.WEBHOOK_METRICS))
    try:
        await asyncio.to_thread(running.start)
        await replicas.eventually(lambda: replicas.is_admitted(api))
        yield running
    finally:
        running.kill()


@pytest.fixture
async def another(installed: Layout, replica: replicas.Replica) -> AsyncIterator[replicas.Replica]:
    """Run a second replica."""
    running = replicas.Replica(installed, installed.port(Port.SCHEDULER), installed.port(Port.AGENT_METRICS))
    try:
        await asyncio.to_thread(running.start)
        yield running
    finally:
        running.kill()


async def _overwrite_bundle(api: Api) -> bytes:
    """Overwrite the caBundle with another authority."""
    stranger = new_authority("stranger", lifetime=timedelta(days=1), now=replicas.now()).certificate_pem
    await ca_bundle.write(api, await ca_bundle.read(api), bundle=stranger)
    return stranger


async def test_drop_old_removes_old_authorities_at_once(
    api: Api, replica: replicas.Replica, another: replicas.Replica
) -> None:
    """Once every replica serves a new certificate, no client needs the old authorities."""
    lines: list[str] = []
    async with replicas.load(api) as load:
        settings = replicas.rotate_settings(probe=(replica.address, another.address), drop_old=True)
        await rotate(api, settings=settings, report=lines.append)
        after = load.admitted + MORE

        async def went_on() -> bool:
            return bool((await ca_bundle.read(api)).bundles) and load.admitted >= after

        await replicas.eventually(went_on)
    assert not load.failures
    stored = (await authority_secret.read(api, now=replicas.now())).authorities
    assert stored.retired == ()
    assert set((await ca_bundle.read(api)).bundles.values()) == {stored.signing.certificate_pem}
    assert sum("serves a new certificate of it" in line for line in lines) == 2


async def test_overwritten_bundle_is_restored(api: Api, replica: replicas.Replica) -> None:
    """After any overwrite, the right authorities are published again."""
    right = (await ca_bundle.read(api)).bundles

    async def restored() -> bool:
        return (await ca_bundle.read(api)).bundles == right

    for _ in range(3):
        await _overwrite_bundle(api)
        await replicas.eventually(restored)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_deleted_secret_is_replaced_without_a_failed_admission(api: Api, replica: replicas.Replica) -> None:
    """The replica creates another authority, and serves its certificate only once every API server trusts it."""
    old = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
    async with replicas.load(api) as load:
        await api.request("DELETE", SECRETS.path(namespace="tranche-system", name=authority_secret.SECRET))

        async def in_use() -> bool:
            listed = await api.list(SECRETS, dict[str, Any], namespace="tranche-system")
            if not any(each["metadata"]["name"] == authority_secret.SECRET for each in listed):
                return False
            new = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
            return new != old and not await problem(replica.address, authority=new)

        await replicas.eventually(in_use)
    assert not load.failures


async def test_rotation_outlives_a_killed_replica(api: Api, replica: replicas.Replica) -> None:
    """The process is killed between announcement and first signature; its next start completes the rotation."""
    old = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
    replica.kill()
    reconciler = AuthorityReconciler(api, configuration="tranche", settle_seconds=replicas.SETTLE_S)
    announced = (await reconciler.reconcile(now=replicas.now(), replacing=old)).authorities.announced
    assert announced is not None
    await asyncio.to_thread(replica.start)
    replica.kill()
    assert (await authority_secret.read(api, now=replicas.now())).authorities.announced is not None
    await asyncio.to_thread(replica.start)

    async def complete() -> bool:
        return not await problem(replica.address, authority=announced.certificate)

    await replicas.eventually(complete)
    stored = (await authority_secret.read(api, now=replicas.now())).authorities
    assert (stored.signing.certificate, stored.announced) == (announced.certificate, None)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_replica_renews_an_old_authority(api: Api, replica: replicas.Replica) -> None:
    """At two thirds of its life, without a request and without a failed pod."""
    stored = await authority_secret.read(api, now=replicas.now())
    aged = new_authority("aged", lifetime=timedelta(days=10), now=replicas.now() - timedelta(days=8))
    retired = type(stored.authorities)(aged, retired=stored.authorities.retired)
    async with replicas.load(api) as load:
        await authority_secret.replace(api, stored, retired)

        async def renewed() -> bool:
            now = (await authority_secret.read(api, now=replicas.now())).authorities
            signing = now.signing.certificate
            return signing != aged.certificate and not await problem(replica.address, authority=signing)

        await replicas.eventually(renewed)
    assert not load.failures


def _run(layout: Layout, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command, "--kubeconfig", str(layout.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("certs", "rotate", "--ca", "--settle-seconds", "0.5", "--poll-seconds", "0.1"),
        ("cli", "rotate-certs", "--ca", "--settle", "0.5"),
    ],
)
async def test_command_reports_each_step_and_succeeds(
    installed: Layout, replica: replicas.Replica, command: tuple[str, ...]
) -> None:
    """One line for each step, and exit code 0 once the server serves the new certificate."""
    done = await asyncio.to_thread(_run, installed, *command, "--probe", replica.address)
    assert (done.returncode, done.stderr) == (0, "")
    words = (
        "signs and is valid until",
        "announced in Secret",
        "caBundle of tranche",
        "stays trusted until",
        "serves a new",
        "verified by",
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
    shown = (await asyncio.to_thread(_run, installed, "certs", "show")).stdout
    digits = lines[1].split()[1]
    row = next(line for line in shown.splitlines() if line.replace(":", "").split()[-1].startswith(digits))
    assert row.split()[2] == "signing"
    assert "unknown" not in shown
    assert "PRIVATE" not in shown


async def test_command_that_times_out_says_what_it_waits_for(api: Api, replica: replicas.Replica) -> None:
    """Nothing listens at the probed address; the rotation itself is complete."""
    settings = RotateSettings(
        ca=True, settle_seconds=0, poll_seconds=replicas.POLL_S, timeout_seconds=3, probe=("127.0.0.1:1",)
    )
    with pytest.raises(RotationError, match=r"not complete within 3 s: 127\.0\.0\.1:1 cannot be reached"):
        await rotate(api, settings=settings, report=lambda _line: None)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_metrics_export_certificate_expiry(replica: replicas.Replica) -> None:
    """The metrics have the seconds until leaf and authority expire, for an alert long before anything fails."""
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.metrics_port)
    writer.write(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    name = "tranche_webhook_certificate_expiry_seconds"
    found = {line.split('"')[1]: float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{{")}
    assert 6 * 86400 < found["leaf"] <= 7 * 86400
    assert found["authority"] > found["leaf"]
