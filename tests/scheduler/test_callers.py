"""Who may call an extender that is reachable from elsewhere: over real TLS, by certificate or by token."""

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
from scheduler.composition import serving
from scheduler.leader import Leader
from scheduler.settings import SchedulerSettings, ServingSettings
from tests.scheduler.builders import pod, state
from tests.scheduler.extending import Bindings, extending
from webhook.settings import WebhookSettings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SERVERS = new_authority("servers", lifetime=30 * DAY, now=NOW)
CLIENTS = new_authority("clients", lifetime=30 * DAY, now=NOW)
FILTER = msgspec.json.encode({"pod": pod("web"), "nodenames": ["n1"]})


class Reviews(Bindings):
    """An API server that knows one token, and counts the reviews."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = 0
        self.is_away = False

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Review a token."""
        if not path.endswith("/tokenreviews"):
            return await super().request(method, path, **how)
        self.reviews += 1
        if self.is_away:
            raise UnreachableError("away")
        known = how["body"]["spec"]["token"] in ("good", "stranger")
        user = {"username": how["body"]["spec"]["token"], "groups": ["system:authenticated"]}
        return msgspec.json.encode({"status": {"authenticated": known, "user": user if known else {}}})


def leaf(authority: KeyPair, name: str, *, server: bool = False) -> KeyPair:
    """Issue a certificate."""
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
    """Write certificate and key."""
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(pair.certificate_pem)
    files[1].write_bytes(pair.key_pem)
    return files


Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def api() -> Reviews:
    """The API server."""
    return Reviews()


@pytest.fixture
def serve(tmp_path: Path, api: Reviews) -> Serve:
    """Serve with TLS as the process does; answers the URL."""

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
        leader = cast("Leader", SimpleNamespace(is_ready=True, deciding=SimpleNamespace(extender=verbs)))
        metrics = cast("Any", verbs)._metrics
        async with serving(configuration, api=api, leader=leader, metrics=metrics) as port:
            yield f"https://127.0.0.1:{port}"

    return run


@pytest.fixture
def client_ca(tmp_path: Path) -> str:
    """The file with the authority of clients."""
    path = tmp_path / "clients.crt"
    path.write_bytes(CLIENTS.certificate_pem)
    return str(path)


async def post(
    url: str, *, path: str = "/filter", body: bytes = FILTER, files: tuple[Path, Path] | None = None, bearer: str = ""
) -> tuple[int, str]:
    """Post as somebody; answers status and text."""
    tls = ssl.create_default_context(cadata=SERVERS.certificate_pem.decode())
    if files is not None:
        tls.load_cert_chain(*files)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    connector = aiohttp.TCPConnector(ssl=tls)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url + path, data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_certificate_of_the_right_authority_may(serve: Serve, client_ca: str, tmp_path: Path) -> None:
    """And no certificate, or none of that authority, may not."""
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, files=write(tmp_path, "a", leaf(CLIENTS, "kube-scheduler"))))[0] == 200
        for path in ("/filter", "/prioritize", "/bind"):
            assert (await post(url, path=path))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await post(url, files=write(tmp_path, "b", leaf(SERVERS, "kube-scheduler")))


async def test_names_of_certificates_can_be_told(serve: Serve, client_ca: str, tmp_path: Path) -> None:
    """Where an authority signs for many, as a cluster's does."""
    async with serve(client_ca_file=client_ca, client_names=("kube-scheduler",)) as url:
        assert (await post(url, files=write(tmp_path, "a", leaf(CLIENTS, "kube-scheduler"))))[0] == 200
        assert (await post(url, files=write(tmp_path, "b", leaf(CLIENTS, "somebody"))))[0] == 401


@pytest.mark.parametrize("allowed", [{"users": ("good",)}, {"groups": ("system:authenticated",)}])
async def test_a_token_is_reviewed_by_the_api_server(serve: Serve, api: Reviews, allowed: dict[str, Any]) -> None:
    """Known and allowed, by name or by group; the answer is remembered for a while."""
    async with serve(**allowed) as url:
        for _ in range(3):
            assert (await post(url, bearer="good"))[0] == 200
        assert api.reviews == 1
        assert (await post(url, bearer="forged"))[0] == 403
        assert (await post(url, bearer="stranger"))[0] == (200 if "groups" in allowed else 403)
        assert (await post(url))[0] == 401
        api.is_away = True
        assert (await post(url, bearer="other"))[0] == 503


async def test_a_token_does_not_do_where_only_certificates_are_asked_for(
    serve: Serve, api: Reviews, client_ca: str
) -> None:
    """Nobody is allowed by token, so none is even reviewed."""
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, bearer="good"))[0] == 403
        assert api.reviews == 0


async def test_health_and_reviews_are_for_everybody(serve: Serve, client_ca: str) -> None:
    """A kubelet probes, and the API server brings no certificate; a review changes nothing but its own pod."""
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
                async with session.get(url + path) as answer:
                    assert expected in await answer.text()
    async with serve(client_ca_file=client_ca) as url:
        assert (await post(url, path="/webhook"))[0] == 404


def test_a_changed_file_is_shown_and_a_broken_one_is_not(tmp_path: Path) -> None:
    """cert-manager writes a new Secret, and the listener goes on."""
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
        ({"host": "0.0.0.0"}, "reachable from elsewhere: set serving.certificate_file"),  # noqa: S104
        ({"host": ""}, "reachable from elsewhere"),
        ({"host": "extender.example"}, "reachable from elsewhere"),
        ({"host": "10.0.0.1", "serving": {"certificate_file": "a", "key_file": "b"}}, "anybody could call"),
        ({"serving": {"certificate_file": "a"}}, "go together"),
        ({"serving": {"client_ca_file": "a"}}, "need TLS"),
        ({"serving": {"webhook": True}}, "need TLS"),
        ({"serving": {"client_names": ["a"], "certificate_file": "a", "key_file": "b"}}, "needs client_ca_file"),
        ({"serving": {"largest_body_mib": 0}}, "at least 1"),
    ],
)
def test_an_open_door_is_not_opened(fields: dict[str, Any], expected: str) -> None:
    """The process refuses to start, and says what is missing."""
    with pytest.raises(msgspec.ValidationError, match=expected):
        msgspec.convert({"extender": True, **fields}, SchedulerSettings)


@pytest.mark.parametrize(
    "fields",
    [
        {"extender": True},
        {"extender": True, "host": "::1"},
        {"extender": True, "host": "localhost"},
        {"host": "0.0.0.0"},  # noqa: S104 -- the loop serves nothing that decides
        {
            "extender": True,
            "host": "0.0.0.0",  # noqa: S104
            "serving": {"certificate_file": "a", "key_file": "b", "users": ["c"]},
        },
    ],
)
def test_a_door_with_a_keeper_is(fields: dict[str, Any]) -> None:
    """Loopback, or TLS and somebody to ask who calls."""
    assert msgspec.convert(fields, SchedulerSettings)
