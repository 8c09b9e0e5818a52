"""What the webhook's process keeps right while it runs, against a real API server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from certs.authority import ensure_authority
from certs.ca_bundle import CONFIGURATION, publish, published
from certs.leaf import ServerNames
from certs.source import IssuedSource
from certs.x509 import new_authority
from cluster.api import Api
from cluster.connection import connect
from lab import manifests
from webhook import __main__ as process
from webhook.routes import Health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

PAUSE_S = 0.02
DEADLINE_S = 20.0


@pytest.fixture
async def api(control_plane: Layout) -> AsyncIterator[Api]:
    """The suite's cluster with our manifests applied."""
    await asyncio.to_thread(manifests.install, control_plane)
    async with connect(kubeconfig=str(control_plane.kubeconfig)) as connection:
        yield Api(connection)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep without the pauses that spare an API server."""
    monkeypatch.setattr(process, "_UPKEEP_SECONDS", PAUSE_S)
    monkeypatch.setattr(process, "_BACKOFF", (PAUSE_S, PAUSE_S))


async def _source(api: Api) -> IssuedSource:
    now = datetime.now(UTC)
    return IssuedSource(await ensure_authority(api, now=now), names=ServerNames(dns_names=("localhost",)), now=now)


async def test_overwritten_bundle_is_restored(api: Api, impatient: None) -> None:
    """Whoever writes another authority into the configuration, the right one comes back."""
    source, health = await _source(api), Health()
    stranger = new_authority("stranger", lifetime=timedelta(days=1), now=datetime.now(UTC))
    await publish(api, bundle=stranger.certificate_pem)
    assert not health.ready
    task = asyncio.create_task(process._keep(api, source, health, CONFIGURATION))
    try:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(2):
                while set((await published(api)).values()) != {source.leaf.authority_pem}:
                    pass
                await publish(api, bundle=stranger.certificate_pem)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert health.ready
    await publish(api, bundle=source.leaf.authority_pem)


async def test_not_ready_before_the_bundle_is_published(
    api: Api, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the configuration nobody could verify us: not ready, and the log says what is missing."""
    source, health = await _source(api), Health()
    task = asyncio.create_task(process._keep(api, source, health, "absent"))
    try:
        async with asyncio.timeout(DEADLINE_S):
            while caplog.text.count('"absent" not found') < 2:
                assert await published(api)  # gives way to the task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert not health.ready
