"""Authentication of remote callers, by certificate or token, over real TLS."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from allocation.settings import AllocationSettings
from certs.files import FileSource
from certs.x509 import KeyPair, issue, new_authority
from cluster.configuration import ClusterSettings, Configuration
from cluster.errors import UnreachableError
from cluster.events import Recorder
from scheduler.leader import Leader
from scheduler.servers import serving
from scheduler.serving_settings import ServingSettings
from scheduler.settings import SchedulerSettings
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.extending import Bindings, extending
from webhook import cluster_quotas
from webhook.settings import WebhookSettings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SERVERS = new_authority("servers", lifetime=30 * DAY, now=NOW)
CLIENTS = new_authority("clients", lifetime=30 * DAY, now=NOW)
FILTER = msgspec.json.encode({"pod": pod("web"), "nodenames": ["n1"]})


class Reviews(Bindings):
    """An API server that accepts two tokens, and counts its reviews."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = 0
        self.is_unreachable = False

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        """Review a token."""
        if not path.endswith("/tokenreviews"):
            return await super().request(method, path, **options)
        self.reviews += 1
        if self.is_unreachable:
            raise UnreachableError("unreachable")
        token = options["body"]["spec"]["token"]
        is_valid = token in ("good", "stranger")
        user = {"username": token, "groups": ["system:authenticated"]}
        return msgspec.json.encode({"status": {"authenticated": is_valid, "user": user if is_valid else {}}})


def leaf(authority: KeyPair, name: str, *, server: bool = False) -> KeyPair:
    """Issue a certificate of a client, or of the server."""
    addresses = ("127.0.0.1",) if server else ()
    return issue(
        authority,
        common_name=name,
        ip_addresses=addresses,
        dns_names=() if server else (name,),
        lifetime=DAY,
        now=NOW,
        server=server,
        client=not server,
    )


def write(folder: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """Write certificate and key to files, and return their paths."""
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(pair.certificate_pem)
    files[1].write_bytes(pair.key_pem)
    return files


Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def api() -> Reviews:
    """Return the API server."""
    return Reviews()


@pytest.fixture
def serve(tmp_path: Path, api: Reviews, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Return a context manager that serves with TLS as the process does, and yields the URL."""
    monkeypatch.setattr(cluster_quotas, "_LIST_SECONDS", 0.0)  # this API server has no GpuQuotas to wait for

    @asynccontextmanager
    async def run(**fields: Any) -> AsyncIterator[str]:
        certificate, key = write(tmp_path, "server", leaf(SERVERS, "server", server=True))
        own = SchedulerSettings(
            extender=True,
            port=0,
            serving=ServingSettings(certificate_file=str(certificate), key_file=str(key), **fields),
        )
        configuration = Configuration(ClusterSettings(), AllocationSettings(), own, {"webhook": WebhookSettings()})
        verbs = extending(state("n1"), api)
        leader = cast("Leader", SimpleNamespace(unready="", deciding=SimpleNamespace(extender=verbs)))
        metrics = cast("Any", verbs)._metrics
        recorder = Recorder(api, component="test", instance="test")
        async with serving(configuration, api=api, leader=leader, metrics=metrics, recorder=recorder) as port:
            yield f"https://127.0.0.1:{port}"

    return run


@pytest.fixture
def client_ca(tmp_path: Path) -> str:
    """Return the path of a file with the authority of the clients."""
    path = tmp_path / "clients.crt"
    path.write_bytes(CLIENTS.certificate_pem)
    return str(path)


async def post(
    url: str, *, path: str = "/filter", body: bytes = FILTER, files: tuple[Path, Path] | None = None, bearer: str = ""
) -> tuple[int, str]:
    """Post with these credentials; return status and text."""
    tls = ssl.create_default_context(cadata=SERVERS.certificate_pem.decode())
    if files is not None:
        tls.load_cert_chain(*files)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    connector = aiohttp.TCPConnector(ssl=tls)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url + path, data=body, headers=headers) as response,
    ):
        return response.status, await response.text()


async def test_client_certificates_of_the_configured_authority_are_accepted(
    serve: Serve, client_ca: str, tmp_path: Path
) -> None:
    """Callers without a certificate, or with one of another authority, are refused."""
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, files=write(tmp_path, "a", leaf(CLIENTS, "kube-scheduler"))))[0] == 200
        for path in ("/filter", "/prioritize", "/preempt", "/bind"):
            assert (await post(url, path=path))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await post(url, files=write(tmp_path, "b", leaf(SERVERS, "kube-scheduler")))


async def test_client_names_restrict_the_accepted_certificates(serve: Serve, client_ca: str, tmp_path: Path) -> None:
    """An authority may sign certificates for many clients, as a cluster's does."""
    async with serve(client_ca_file=client_ca, client_names=("kube-scheduler",)) as url:
        assert (await post(url, files=write(tmp_path, "a", leaf(CLIENTS, "kube-scheduler"))))[0] == 200
        assert (await post(url, files=write(tmp_path, "b", leaf(CLIENTS, "somebody"))))[0] == 401


@pytest.mark.parametrize("allowed", [{"users": ("good",)}, {"groups": ("system:authenticated",)}])
async def test_a_token_is_reviewed_by_the_api_server(serve: Serve, api: Reviews, allowed: dict[str, Any]) -> None:
    """Users are allowed by name or by group, and reviews are cached."""
    async with serve(**allowed) as url:
        for _ in range(3):
            assert (await post(url, bearer="good"))[0] == 200
        assert api.reviews == 1
        assert (await post(url, bearer="forged"))[0] == 403
        assert (await post(url, bearer="stranger"))[0] == (200 if "groups" in allowed else 403)
        assert (await post(url))[0] == 401
        api.is_unreachable = True
        assert (await post(url, bearer="other"))[0] == 503


async def test_tokens_are_not_reviewed_if_only_certificates_are_accepted(
    serve: Serve, api: Reviews, client_ca: str
) -> None:
    """The settings allow no user and no group."""
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, bearer="good"))[0] == 403
        assert api.reviews == 0


async def test_health_and_admission_require_no_authentication(serve: Serve, client_ca: str) -> None:
    """The kubelet sends no credentials, and neither does the API server; a review changes only its own pod."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "operation": "CREATE",
            "kind": {"kind": "Pod"},
            "object": {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
        },
    }
    async with serve(client_ca_file=client_ca, webhook=True) as url:
        for path in ("/webhook", "/mutate"):
            status, text = await post(url, path=path, body=msgspec.json.encode(review))
            assert status == 200
            assert '"patch"' in text
        tls = ssl.create_default_context(cadata=SERVERS.certificate_pem.decode())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            for path, expected in (
                ("/healthz", "ok"),
                ("/readyz", "ok"),
                ("/metrics", "tranche_webhook_reviews_total"),
            ):
                async with session.get(url + path) as response:
                    assert expected in await response.text()
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, path="/webhook"))[0] == 404


def test_a_changed_certificate_is_served_and_a_broken_file_is_not(tmp_path: Path) -> None:
    """The listener continues when cert-manager writes a new Secret."""
    now = [0.0]
    certificate, key = write(tmp_path, "server", leaf(SERVERS, "one", server=True))
    source = FileSource(certificate, key, clock=lambda: now[0])
    first = source.context(None)
    certificate.write_text("broken")
    assert source.context(None) is first
    now[0] += 10
    assert source.context(None) is first
    write(tmp_path, "server", leaf(SERVERS, "two", server=True))
    now[0] += 10
    second = source.context(None)
    assert second is not first
    now[0] += 10
    assert source.context(None) is second


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"host": "0.0.0.0"}, "can reach host '0.0.0.0': set serving.certificate_file"),  # noqa: S104
        ({"host": ""}, "other hosts can reach"),
        ({"host": "extender.example"}, "other hosts can reach"),
        ({"host": "10.0.0.1", "serving": {"certificate_file": "a", "key_file": "b"}}, "anybody could call"),
        ({"serving": {"certificate_file": "a"}}, "go together"),
        ({"serving": {"client_ca_file": "a"}}, "need TLS"),
        ({"serving": {"webhook": True}}, "need TLS"),
        ({"serving": {"client_names": ["a"], "certificate_file": "a", "key_file": "b"}}, "needs client_ca_file"),
        ({"serving": {"largest_body_mib": 0}}, "at least 1"),
    ],
)
def test_insecure_serving_settings_are_rejected(fields: dict[str, Any], expected: str) -> None:
    """The process does not start, and the error names the missing setting."""
    with pytest.raises(msgspec.ValidationError, match=expected):
        msgspec.convert({"extender": True, **fields}, SchedulerSettings)


@pytest.mark.parametrize(
    "fields",
    [
        {"extender": True},
        {"extender": True, "host": "::1"},
        {"extender": True, "host": "localhost"},
        {"host": "0.0.0.0"},  # noqa: S104 -- the loop serves no verbs
        {
            "extender": True,
            "host": "0.0.0.0",  # noqa: S104
            "serving": {"certificate_file": "a", "key_file": "b", "users": ["c"]},
        },
    ],
)
def test_loopback_or_authenticated_callers_are_accepted(fields: dict[str, Any]) -> None:
    """An extender needs loopback, or TLS and settings to authenticate callers."""
    assert msgspec.convert(fields, SchedulerSettings)
