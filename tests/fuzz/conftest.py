"""The ports to which anybody can connect, opened as the processes open them."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from allocation.settings import AllocationSettings
from certs.leaf import ServerNames
from certs.source import IssuedSource
from certs.x509 import KeyPair, issue, new_authority
from cluster.configuration import ClusterSettings, Configuration
from cluster.events import Recorder
from fuzz.world import CLAIMS
from scheduler import servers
from scheduler.leader import Leader
from scheduler.serving_settings import ServingSettings
from scheduler.settings import SchedulerSettings
from tests.scheduler.support.builders import state
from tests.scheduler.support.extending import extending
from webhook import cluster_quotas, server
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.routes import Health
from webhook.settings import WebhookSettings

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Port:
    """A listening port; `tls` is None if it serves plain HTTP."""

    number: int
    tls: ssl.SSLContext | None

    async def get(self, path: str = "/healthz", body: bytes | None = None) -> int:
        """Send a request as an honest client does, over a new connection; return the status."""
        url = f"http{'s' if self.tls else ''}://{HOST}:{self.number}{path}"
        connector = aiohttp.TCPConnector(ssl=self.tls or True, force_close=True)
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, url, data=body) as response,
        ):
            await response.read()
            return response.status


@pytest.fixture
def authority() -> KeyPair:
    """The authority that signs every certificate."""
    return new_authority("tests", lifetime=timedelta(days=2), now=datetime.now(UTC))


@pytest.fixture
async def webhook(authority: KeyPair) -> AsyncIterator[tuple[Port, Port]]:
    """The webhook's ports, for reviews and for metrics."""
    settings, health = WebhookSettings(host=HOST, port=0, metrics_port=0), Health()
    health.ready = True
    metrics = Metrics()
    admission = Admission(
        allocation=AllocationSettings(),
        settings=settings,
        metrics=metrics,
        quotas=lambda _: Quotas(),
        claims=CLAIMS,
        memberships=None,
        bindings=None,
    )
    source = IssuedSource(authority, names=ServerNames(("localhost",), (HOST,)), now=datetime.now(UTC))
    async with server.serving(
        admission=admission, health=health, metrics=metrics, source=source, settings=settings
    ) as ports:
        yield Port(ports.reviews, _trusting(authority)), Port(ports.metrics, None)


@pytest.fixture
async def scheduler(authority: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    """The scheduler's port, with the extender's verbs, the API, metrics and admission."""
    monkeypatch.setattr(cluster_quotas, "_LIST_SECONDS", 0.0)  # this API server has no GpuQuotas to wait for
    pair = issue(
        authority,
        common_name="scheduler",
        ip_addresses=(HOST,),
        lifetime=timedelta(days=1),
        now=datetime.now(UTC),
        server=True,
    )
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    files[0].write_bytes(pair.certificate_pem)
    files[1].write_bytes(pair.key_pem)
    serving = ServingSettings(certificate_file=str(files[0]), key_file=str(files[1]), webhook=True)
    own = SchedulerSettings(extender=True, port=0, serving=serving)
    verbs = extending(state("n1"))
    leader = cast("Leader", SimpleNamespace(is_ready=True, deciding=SimpleNamespace(extender=verbs, queries=None)))
    configuration = Configuration(ClusterSettings(), AllocationSettings(), own, {"webhook": WebhookSettings()})
    api = cast("Any", verbs)._pods._api
    async with servers.serving(
        configuration,
        api=api,
        leader=leader,
        metrics=cast("Any", verbs)._metrics,
        recorder=Recorder(api, component="test", instance="test"),
    ) as number:
        yield Port(number, _trusting(authority))


def _trusting(authority: KeyPair) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate_pem.decode())
