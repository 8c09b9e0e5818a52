"""Rotation as users notice it, which is not at all: the webhook's process, a real API server, pods all the time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from certs import authority_secret, ca_bundle
from certs.keeper import Keeper
from certs.probe import objection
from certs.rotate import RotationError, rotate
from certs.settings import RotateSettings
from certs.x509 import new_authority
from cluster.api import Api
from cluster.connection import connect
from cluster.resource import SECRETS
from lab.layout import Port
from tests.certs import replicas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
MORE = 50


@pytest.fixture
async def api(installed: Layout) -> AsyncIterator[Api]:
    """The API as an administrator uses it."""
    async with connect(kubeconfig=str(installed.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
async def replica(installed: Layout, api: Api) -> AsyncIterator[replicas.Replica]:
    """A replica that the API server calls; pods are admitted when this returns."""
    running = replicas.Replica(installed, installed.port(Port.WEBHOOK), installed.port(Port.WEBHOOK_METRICS))
    try:
        await asyncio.to_thread(running.start)
        await replicas.eventually(lambda: replicas.is_admitted(api))
        yield running
    finally:
        running.kill()


@pytest.fixture
async def another(installed: Layout, replica: replicas.Replica) -> AsyncIterator[replicas.Replica]:
    """A second one."""
    running = replicas.Replica(installed, installed.port(Port.SCHEDULER), installed.port(Port.AGENT_METRICS))
    try:
        await asyncio.to_thread(running.start)
        yield running
    finally:
        running.kill()


async def _stomp(api: Api) -> bytes:
    """Overwrite the caBundle with a stranger's."""
    stranger = new_authority("stranger", lifetime=timedelta(days=1), now=replicas.now()).certificate_pem
    await ca_bundle.write(api, await ca_bundle.read(api), bundle=stranger)
    return stranger


async def test_old_authorities_can_be_dropped_at_once(
    api: Api, replica: replicas.Replica, another: replicas.Replica
) -> None:
    """Every replica was seen to show a new certificate, so nobody needs them any more."""
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
    assert sum("shows a new certificate of it" in line for line in lines) == 2


async def test_an_overwritten_bundle_is_restored(api: Api, replica: replicas.Replica) -> None:
    """Whoever writes another authority there, the right ones come back."""
    right = (await ca_bundle.read(api)).bundles

    async def restored() -> bool:
        return (await ca_bundle.read(api)).bundles == right

    for _ in range(3):
        await _stomp(api)
        await replicas.eventually(restored)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_a_deleted_secret_is_healed_without_a_failure(api: Api, replica: replicas.Replica) -> None:
    """The replica makes another authority, and shows its certificate only when every API server believes it."""
    old = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
    async with replicas.load(api) as load:
        await api.request("DELETE", SECRETS.path(namespace="tranche-system", name=authority_secret.SECRET))

        async def in_use() -> bool:
            listed = await api.list(SECRETS, dict[str, Any], namespace="tranche-system")
            if not any(each["metadata"]["name"] == authority_secret.SECRET for each in listed):
                return False
            new = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
            return new != old and not await objection(replica.address, authority=new)

        await replicas.eventually(in_use)
    assert not load.failures


async def test_a_rotation_outlives_the_process_that_makes_it(api: Api, replica: replicas.Replica) -> None:
    """Killed between announcement and first signature; the next start completes it."""
    old = (await authority_secret.read(api, now=replicas.now())).authorities.signing.certificate
    replica.kill()
    keeper = Keeper(api, configuration="tranche", settle_seconds=replicas.SETTLE_S)
    announced = (await keeper.tick(now=replicas.now(), replacing=old)).authorities.announced
    assert announced is not None
    await asyncio.to_thread(replica.start)
    replica.kill()
    assert (await authority_secret.read(api, now=replicas.now())).authorities.announced is not None
    await asyncio.to_thread(replica.start)

    async def complete() -> bool:
        return not await objection(replica.address, authority=announced.certificate)

    await replicas.eventually(complete)
    stored = (await authority_secret.read(api, now=replicas.now())).authorities
    assert (stored.signing.certificate, stored.announced) == (announced.certificate, None)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_an_authority_of_age_is_renewed_by_the_replica(api: Api, replica: replicas.Replica) -> None:
    """At two thirds of its life, with nobody asking and no pod failing."""
    stored = await authority_secret.read(api, now=replicas.now())
    aged = new_authority("aged", lifetime=timedelta(days=10), now=replicas.now() - timedelta(days=8))
    retired = type(stored.authorities)(aged, retired=stored.authorities.retired)
    async with replicas.load(api) as load:
        await authority_secret.replace(api, stored, retired)

        async def renewed() -> bool:
            now = (await authority_secret.read(api, now=replicas.now())).authorities
            signing = now.signing.certificate
            return signing != aged.certificate and not await objection(replica.address, authority=signing)

        await replicas.eventually(renewed)
    assert not load.failures


def _run(layout: Layout, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command, "--kubeconfig", str(layout.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=replicas.READY_S * 2,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("certs", "rotate", "--ca", "--settle-seconds", "0.5", "--poll-seconds", "0.1"),
        ("cli", "rotate-certs", "--ca", "--settle", "0.5"),
    ],
)
async def test_the_command_says_each_step_and_ends_well(
    installed: Layout, replica: replicas.Replica, command: tuple[str, ...]
) -> None:
    """One line for each, and exit code 0 once the server shows the new certificate."""
    done = await asyncio.to_thread(_run, installed, *command, "--probe", replica.address)
    assert (done.returncode, done.stderr) == (0, "")
    words = (
        "signs, until",
        "announced in Secret",
        "caBundle of tranche",
        "is believed until",
        "shows a new",
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


async def test_a_command_that_cannot_end_well_says_where_it_stands(api: Api, replica: replicas.Replica) -> None:
    """Nobody listens at the address that was to be probed; the rotation itself is done."""
    settings = RotateSettings(
        ca=True, settle_seconds=0, poll_seconds=replicas.POLL_S, timeout_seconds=3, probe=("127.0.0.1:1",)
    )
    with pytest.raises(RotationError, match=r"not done within 3 s: 127\.0\.0\.1:1 cannot be reached"):
        await rotate(api, settings=settings, report=lambda _line: None)
    await replicas.eventually(lambda: replicas.is_admitted(api))


async def test_the_metrics_tell_how_long_certificates_last(replica: replicas.Replica) -> None:
    """Seconds left of the leaf and of its authority, for an alert long before anything fails."""
    reader, writer = await asyncio.open_connection("127.0.0.1", replica.metrics_port)
    writer.write(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    name = "tranche_webhook_certificate_expiry_seconds"
    found = {line.split('"')[1]: float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{{")}
    assert 6 * 86400 < found["leaf"] <= 7 * 86400
    assert found["authority"] > found["leaf"]
