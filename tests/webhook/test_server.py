"""The server over real TLS, with a real authority."""

import io
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from allocation.settings import AllocationSettings
from certs.leaf import ServerNames
from certs.source import IssuedSource
from certs.x509 import KeyPair, new_authority
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.routes import LARGEST_REVIEW, Health
from webhook.server import Ports, serving
from webhook.settings import WebhookSettings

NAMES = ServerNames(dns_names=("tranche-webhook.tranche-system.svc", "localhost"), ip_addresses=("127.0.0.1",))
SETTINGS = WebhookSettings(host="127.0.0.1", port=0, metrics_port=0)


def authority() -> KeyPair:
    """Make one that is valid now: clients here go by the real clock."""
    return new_authority("tests", lifetime=timedelta(days=30), now=datetime.now(UTC))


def trusting(*authorities: KeyPair) -> ssl.SSLContext:
    """Make a client's context."""
    return ssl.create_default_context(cadata="".join(each.certificate_pem.decode() for each in authorities))


def review(version: str = "v1", padding: int = 0) -> bytes:
    """A review of a GPU pod, enlarged by so many bytes."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return json.dumps(
        {
            "apiVersion": f"admission.k8s.io/{version}",
            "request": {
                "uid": "u-1",
                "kind": {"kind": "Pod"},
                "operation": "CREATE",
                "object": {"metadata": {"annotations": {"a": "x" * padding}}, "spec": {"containers": [container]}},
            },
        }
    ).encode()


@dataclass
class Running:
    """A server and a client of it."""

    ports: Ports
    health: Health
    source: IssuedSource
    authority: KeyPair
    client: aiohttp.ClientSession

    def url(self, path: str = "/mutate") -> str:
        """Answer a URL of the TLS listener."""
        return f"https://127.0.0.1:{self.ports.reviews}{path}"

    async def send(self, body: bytes, *, path: str = "/mutate", **options: Any) -> tuple[int, Any]:
        """Post a body; answer status and decoded JSON, or the text where it is none."""
        options.setdefault("ssl", trusting(self.authority))
        async with self.client.post(self.url(path), data=io.BytesIO(body), **options) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """A ready server."""
    signer, health, metrics = authority(), Health(), Metrics()
    health.ready = True
    admission = Admission(allocation=AllocationSettings(), settings=SETTINGS, metrics=metrics, quotas=lambda _: {})
    source = IssuedSource(signer, names=NAMES, now=datetime.now(UTC))
    async with (
        serving(admission=admission, health=health, metrics=metrics, source=source, settings=SETTINGS) as ports,
        aiohttp.ClientSession() as client,
    ):
        yield Running(ports, health, source, signer, client)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("path", ["/mutate", "/webhook"])
async def test_reviews_are_answered_over_tls(running: Running, version: str, path: str) -> None:
    """Both versions on both paths: ours, and the one that a HAMi configuration calls."""
    status, answer = await running.send(review(version), path=path)
    assert status == 200
    assert answer["apiVersion"] == f"admission.k8s.io/{version}"
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == "u-1"
    assert answer["response"]["patchType"] == "JSONPatch"


async def test_another_authority_is_not_believed(running: Running) -> None:
    """An API server with a wrong caBundle does not talk to us."""
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await running.send(review(), ssl=trusting(authority()))


@pytest.mark.parametrize("name", ["tranche-webhook.tranche-system.svc", "localhost", None])
async def test_certificate_has_every_configured_name(running: Running, name: str | None) -> None:
    """By service name, host name and address."""
    status, _ = await running.send(review(), server_hostname=name)
    assert status == 200


async def test_certificate_has_no_other_name(running: Running) -> None:
    """A name that was not configured is refused by the client."""
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await running.send(review(), server_hostname="example.com")


async def test_old_tls_is_refused(running: Running) -> None:
    """TLS 1.1 is broken."""
    old = trusting(running.authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(aiohttp.ClientConnectorError):
        await running.send(review(), ssl=old)


async def test_large_reviews_are_read_and_larger_ones_are_not(running: Running) -> None:
    """8 MiB to the byte; one more is refused with 413."""
    largest = review(padding=LARGEST_REVIEW - len(review()))
    assert len(largest) == LARGEST_REVIEW
    status, answer = await running.send(largest)
    assert (status, answer["response"]["allowed"]) == (200, True)
    status, _ = await running.send(largest + b" ")
    assert status == 413


async def test_what_is_no_review_is_a_bad_request(running: Running) -> None:
    """HTTP 400, in clear words."""
    status, text = await running.send(b'{"kind": "Pod"}')
    assert status == 400
    assert "AdmissionReview" in text


async def test_renewal_needs_no_restart_and_drops_nobody(running: Running) -> None:
    """A new authority's leaf is shown to new connections at once; an open connection goes on."""
    old = trusting(running.authority)
    async with running.client.get(running.url("/healthz"), ssl=old) as answer:
        assert await answer.text() == "ok"
    renewed = authority()
    assert running.source.renew(renewed, now=datetime.now(UTC))
    async with running.client.get(running.url("/healthz"), ssl=old) as answer:  # the session's open connection
        assert await answer.text() == "ok"
    async with aiohttp.ClientSession() as another:
        async with another.get(running.url("/healthz"), ssl=trusting(renewed)) as answer:
            assert await answer.text() == "ok"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await another.get(running.url("/healthz"), ssl=old)


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readiness_is_told_apart_from_life(running: Running, ready: bool, status: int) -> None:  # noqa: FBT001
    """Both on the TLS port and, for probes, beside the metrics."""
    running.health.ready = ready
    plain = f"http://127.0.0.1:{running.ports.metrics}"
    for base in (running.url(""), plain):
        async with running.client.get(f"{base}/readyz", ssl=trusting(running.authority)) as answer:
            assert answer.status == status
        async with running.client.get(f"{base}/healthz", ssl=trusting(running.authority)) as answer:
            assert answer.status == 200


async def test_a_leaving_server_answers_and_sends_callers_away(running: Running) -> None:
    """Not ready any more, it still answers, and asks the API server to connect elsewhere next time."""
    running.health.ready = False
    async with running.client.post(running.url(), data=review(), ssl=trusting(running.authority)) as answer:
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"


async def test_metrics_count_reviews(running: Running) -> None:
    """By outcome, with a histogram in milliseconds and below."""
    await running.send(review())
    await running.send(b"")
    async with running.client.get(f"http://127.0.0.1:{running.ports.metrics}/metrics") as answer:
        text = await answer.text()
    assert 'tranche_webhook_reviews_total{outcome="mutated"} 1.0' in text
    assert 'tranche_webhook_reviews_total{outcome="malformed"} 1.0' in text
    assert 'tranche_webhook_review_seconds_bucket{le="0.001"}' in text
