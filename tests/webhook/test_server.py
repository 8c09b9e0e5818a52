"""The server over real TLS, with a real authority."""

import base64
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
from certs import canary
from certs.leaf import ServerNames
from certs.source import IssuedSource
from certs.x509 import KeyPair, new_authority
from tests.webhook.support.claims import Claims
from webhook.admission import Admission
from webhook.metrics import Metrics
from webhook.quotas import Quotas
from webhook.routes import LARGEST_REVIEW, Health
from webhook.server import Ports, serving
from webhook.settings import WebhookSettings

NAMES = ServerNames(dns_names=("tranche-webhook.tranche-system.svc", "localhost"), ip_addresses=("127.0.0.1",))
SETTINGS = WebhookSettings(host="127.0.0.1", port=0, metrics_port=0)


def authority() -> KeyPair:
    """Return an authority that is valid now, because clients here use the real clock."""
    return new_authority("tests", lifetime=timedelta(days=30), now=datetime.now(UTC))


def trusting(*authorities: KeyPair) -> ssl.SSLContext:
    """Return a client's context that trusts these authorities."""
    return ssl.create_default_context(cadata="".join(each.certificate_pem.decode() for each in authorities))


def review(version: str = "v1", padding: int = 0) -> bytes:
    """Return a review of a GPU pod, enlarged by `padding` bytes."""
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
    """A server and a client."""

    ports: Ports
    health: Health
    source: IssuedSource
    authority: KeyPair
    client: aiohttp.ClientSession

    def url(self, path: str = "/mutate") -> str:
        """Return a URL of the TLS listener."""
        return f"https://127.0.0.1:{self.ports.reviews}{path}"

    async def send(self, body: bytes, *, path: str = "/mutate", **options: Any) -> tuple[int, Any]:
        """Post a body; return the status and the decoded JSON, or the text of any other content type."""
        options.setdefault("ssl", trusting(self.authority))
        async with self.client.post(self.url(path), data=io.BytesIO(body), **options) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Run a ready server."""
    signer, health, metrics = authority(), Health(), Metrics()
    health.ready = True
    admission = Admission(
        allocation=AllocationSettings(),
        settings=SETTINGS,
        metrics=metrics,
        quotas=lambda _: Quotas(),
        claims=Claims({}),
        memberships=None,
        bindings=None,
    )
    source = IssuedSource(signer, names=NAMES, canary="canary.svc", now=datetime.now(UTC))
    async with (
        serving(admission=admission, health=health, metrics=metrics, source=source, settings=SETTINGS) as ports,
        aiohttp.ClientSession() as client,
    ):
        yield Running(ports, health, source, signer, client)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("path", ["/mutate", "/webhook"])
async def test_reviews_are_answered_over_tls(running: Running, version: str, path: str) -> None:
    """Both versions on both paths: ours, and that of a HAMi configuration."""
    status, answer = await running.send(review(version), path=path)
    assert status == 200
    assert answer["apiVersion"] == f"admission.k8s.io/{version}"
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == "u-1"
    assert answer["response"]["patchType"] == "JSONPatch"


async def test_review_in_chunks_is_answered(running: Running) -> None:
    """A proxy may send it so, without its length; the answer is the same."""

    async def chunks() -> AsyncIterator[bytes]:
        yield review()[:100]
        yield review()[100:]

    async with running.client.post(running.url(), data=chunks(), ssl=trusting(running.authority)) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert await answer.json() == (await running.send(review()))[1]


async def test_client_with_another_authority_rejects_the_server(running: Running) -> None:
    """A client that trusts another authority closes the connection."""
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await running.send(review(), ssl=trusting(authority()))


@pytest.mark.parametrize("name", ["tranche-webhook.tranche-system.svc", "localhost", None])
async def test_certificate_has_every_configured_name(running: Running, name: str | None) -> None:
    """Service name, host name and address are in the certificate."""
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


async def test_reviews_up_to_the_size_limit_are_answered(running: Running) -> None:
    """8 MiB to the byte; one more is refused with 413."""
    largest = review(padding=LARGEST_REVIEW - len(review()))
    assert len(largest) == LARGEST_REVIEW
    status, answer = await running.send(largest)
    assert (status, answer["response"]["allowed"]) == (200, True)
    status, _ = await running.send(largest + b" ")
    assert status == 413


async def test_body_that_is_not_a_review_is_a_bad_request(running: Running) -> None:
    """The response is HTTP 400 and says that an AdmissionReview is expected."""
    status, text = await running.send(b'{"kind": "Pod"}')
    assert status == 400
    assert "AdmissionReview" in text


async def test_renewal_needs_no_restart_and_keeps_connections_open(running: Running) -> None:
    """New connections get the leaf of a new authority at once; an open connection continues."""
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


async def test_canary_reports_the_certificate_of_its_connection(running: Running) -> None:
    """It names the authority of the connection's certificate: the current one, or the next one for the canary name."""
    coming = authority()
    body = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "request": {"uid": "u-1", "object": {"metadata": {"annotations": {"gpu.scheduling/canary": "word"}}}},
        }
    ).encode()

    async def reply(trusted: KeyPair, name: str | None) -> str:
        status, answer = await running.send(body, path="/canary", ssl=trusting(trusted), server_hostname=name)
        assert status == 200
        (operation,) = json.loads(base64.b64decode(answer["response"]["patch"]))
        assert operation["path"] == "/metadata/annotations/gpu.scheduling~1canary"
        return str(operation["value"])

    running.source.prepare_next(coming, now=datetime.now(UTC))
    assert await reply(running.authority, None) == canary.reply("word", running.authority.certificate)
    assert await reply(coming, "canary.svc") == canary.reply("word", coming.certificate)
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await reply(running.authority, "canary.svc")
    running.source.renew(coming, now=datetime.now(UTC))
    assert await reply(coming, None) == canary.reply("word", coming.certificate)
    assert (await running.send(b"{}", path="/canary", ssl=trusting(coming)))[0] == 400


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readiness_and_liveness_are_separate(running: Running, ready: bool, status: int) -> None:  # noqa: FBT001
    """Both are on the TLS port and, for probes, on the metrics port."""
    running.health.ready = ready
    plain = f"http://127.0.0.1:{running.ports.metrics}"
    for base in (running.url(""), plain):
        async with running.client.get(f"{base}/readyz", ssl=trusting(running.authority)) as answer:
            assert answer.status == status
        async with running.client.get(f"{base}/healthz", ssl=trusting(running.authority)) as answer:
            assert answer.status == 200


async def test_draining_server_answers_and_closes_connections(running: Running) -> None:
    """While it drains, it answers with `Connection: close`, so the API server connects to another replica."""
    running.health.ready = False
    async with running.client.post(running.url(), data=review(), ssl=trusting(running.authority)) as answer:
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"


async def test_metrics_count_reviews(running: Running) -> None:
    """They are counted by outcome, with a histogram that resolves a millisecond."""
    await running.send(review())
    await running.send(b"")
    async with running.client.get(f"http://127.0.0.1:{running.ports.metrics}/metrics") as answer:
        text = await answer.text()
    assert 'tranche_webhook_reviews_total{outcome="mutated"} 1.0' in text
    assert 'tranche_webhook_reviews_total{outcome="malformed"} 1.0' in text
    assert 'tranche_webhook_review_seconds_bucket{le="0.001"}' in text
