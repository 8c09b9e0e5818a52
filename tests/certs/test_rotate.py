"""The rotate command, with an API server in memory and real TLS servers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from certs import authority_secret
from certs.authority_reconciler import AuthorityReconciler
from certs.leaf import ServerNames
from certs.probe import parse_address, problem
from certs.replica_reconciler import IssuedReconciler
from certs.rotate import RotationError, rotate
from certs.settings import RotateSettings
from certs.source import IssuedSource, listener_context
from certs.x509 import new_authority
from cluster import configuration
from cluster.errors import ApiError, ClusterError, TooManyRequestsError, UnreachableError

NAMES = ServerNames(dns_names=("webhook.svc",))
FAST = RotateSettings(ca=True, settle_seconds=0, poll_seconds=0.001, timeout_seconds=10)


def now() -> datetime:
    """Return the real time, which TLS uses."""
    return datetime.now(UTC)


def pair() -> Any:
    """Return a new authority."""
    return new_authority("tests", lifetime=timedelta(days=30), now=now())


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Serve TLS, or plain bytes without a context; yield HOST:PORT."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if context is None:
            writer.write(b"no TLS here, and that for more bytes than a record's header has")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:99999", "http://host:1", "host:1/x"])
def test_invalid_address_is_refused(address: str) -> None:
    """Only HOST:PORT is accepted."""
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(address)


def test_addresses_of_every_kind_are_accepted() -> None:
    """Names, IPv4, and IPv6 in brackets."""
    assert parse_address("webhook:8443") == ("webhook", 8443)
    assert parse_address("10.0.0.7:8443") == ("10.0.0.7", 8443)
    assert parse_address("[fd00::7]:8443") == ("fd00::7", 8443)


def test_boolean_flags_need_no_value() -> None:
    """`--ca --dry-run` is enough; `--ca false` overrides a configuration file."""

    def load(*flags: str) -> RotateSettings:
        return configuration.load(flags, section="certs", settings=RotateSettings, prog="", description="").own

    assert load("--ca", "--dry-run", "--settle-seconds", "1") == RotateSettings(ca=True, dry_run=True, settle_seconds=1)
    assert load("--ca", "false") == load() == RotateSettings()


async def test_probe_distinguishes_authorities_by_key() -> None:
    """Both authorities have the same name; the key decides."""
    signer = pair()
    source = IssuedSource(signer, names=NAMES, now=now())
    async with listening(listener_context(source)) as address:
        assert not await problem(address, authority=signer.certificate)
        other = pair()
        assert "does not serve a certificate of the new authority" in await problem(
            address, authority=other.certificate
        )
        source.renew(other, now=now())
        assert not await problem(address, authority=other.certificate)


async def test_probe_reports_a_server_without_tls() -> None:
    """A server without TLS, and an address where nothing listens."""
    signer = pair()
    async with listening(None) as address:
        assert f"{address} cannot be reached" in await problem(address, authority=signer.certificate)
    assert f"{address} cannot be reached" in await problem(address, authority=signer.certificate)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"probe": ("nowhere",)}, "'nowhere' is not HOST:PORT"),
        ({"drop_old": True}, "drop_old without probe"),
        ({"drop_old": True, "probe": ("h:1",)}, "drop_old without ca"),
    ],
)
async def test_contradictory_settings_are_refused_before_any_request(
    api: Any, options: dict[str, Any], words: str
) -> None:
    """No request is sent."""
    with pytest.raises(RotationError, match=words):
        await rotate(api, settings=RotateSettings(**options), report=print)
    assert not api.requests


async def test_rotation_without_probe_ends_with_the_new_state(api: Any) -> None:
    """The new authority signs, is published and trusted; the last line says what was not checked."""
    api.put_configuration(None)
    lines: list[str] = []
    await rotate(api, settings=FAST, report=lines.append)
    assert "verified by an admission" in lines[-2]
    assert lines[-1].startswith("each replica serves a new certificate after its next poll")
    stored = (await authority_secret.read(api, now=now())).authorities
    assert len(stored.retired) == 1
    assert api.bundles() == [stored.bundle]


async def test_rotation_without_ca_renews_only_leaves(api: Any) -> None:
    """Without `ca`, replicas issue new leaves; caBundle and authority stay as they are."""
    api.put_configuration(None)
    reconciler = AuthorityReconciler(api, configuration="tranche", settle_seconds=0)
    signer = (await reconciler.reconcile(now=now())).authorities.signing
    source = IssuedSource(signer, names=NAMES, now=now())
    replica, first, bundles = IssuedReconciler(reconciler, source), source.leaf, api.bundles()
    lines: list[str] = []
    async with listening(listener_context(source)) as address, asyncio.TaskGroup() as tasks:
        settings = RotateSettings(settle_seconds=0, poll_seconds=0.001, timeout_seconds=10, probe=(address,))
        rotation = tasks.create_task(rotate(api, settings=settings, report=lines.append))
        while not rotation.done():
            await replica.reconcile(now=now())
            await asyncio.sleep(0)
    assert source.leaf.certificate != first.certificate
    assert source.leaf.authority == signer.certificate
    assert api.bundles() == bundles
    assert [line for line in lines if f"{address} serves a new certificate" in line]
    again = source.leaf
    await replica.reconcile(now=now())
    assert source.leaf is again


async def test_dry_run_changes_nothing_and_reports_the_steps(api: Any) -> None:
    """It sends only the admission request that changes nothing."""
    api.put_configuration(None)
    await AuthorityReconciler(api, configuration="tranche", settle_seconds=0).reconcile(now=now())
    before = api.writes()
    lines: list[str] = []
    await rotate(api, settings=structs.replace(FAST, dry_run=True), report=lines.append)
    assert api.writes() == before
    assert ("PATCH", api.CANARY) in api.requests
    assert any("would announce a new authority" in line for line in lines)
    assert lines[-1] == "dry run: nothing was changed"


async def test_dry_run_reports_obstacles(api: Any) -> None:
    """The Secret is missing, nothing listens at an address, or the API server does not trust the webhook."""
    api.put_configuration(None)
    settings = structs.replace(FAST, dry_run=True)
    with pytest.raises(RotationError, match="nothing to rotate"):
        await rotate(api, settings=settings, report=print)
    assert not api.objects.get(api.SECRET)
    await AuthorityReconciler(api, configuration="tranche", settle_seconds=0).reconcile(now=now())
    with pytest.raises(RotationError, match=r"127\.0\.0\.1:1 does not serve a certificate"):
        await rotate(api, settings=structs.replace(settings, probe=("127.0.0.1:1",)), report=print)
    api.accepts = lambda: pair().certificate
    with pytest.raises(RotationError, match="would not complete: the API server reached a replica that does not"):
        await rotate(api, settings=settings, report=print)


async def test_authority_that_the_api_server_rejects_never_signs(api: Any) -> None:
    """The rotation waits and says for what; the old authority continues to sign."""
    api.put_configuration(None)
    reconciler = AuthorityReconciler(api, configuration="tranche", settle_seconds=0)
    old = (await reconciler.reconcile(now=now())).authorities.signing.certificate
    api.accepts = lambda: old
    settings = structs.replace(FAST, timeout_seconds=0.2)
    with pytest.raises(
        RotationError, match=r"not complete within 0.2 s: the API server reached a replica that does not serve"
    ):
        await rotate(api, settings=settings, report=lambda _line: None)
    assert (await authority_secret.read(api, now=now())).authorities.signing.certificate == old


async def test_rotation_in_progress_is_followed(api: Any) -> None:
    """Two concurrent commands make one rotation."""
    api.put_configuration(None)
    reconciler = AuthorityReconciler(api, configuration="tranche", settle_seconds=600)
    old = (await reconciler.reconcile(now=now())).authorities.signing.certificate
    announced = (await reconciler.reconcile(now=now(), replacing=old)).authorities.announced
    lines: list[str] = []
    await rotate(api, settings=FAST, report=lines.append)
    assert any("already in progress" in line for line in lines)
    assert announced is not None
    assert (await authority_secret.read(api, now=now())).authorities.signing.certificate == announced.certificate


AWAY = UnreachableError("the API server is away")
STATUS = {
    500: ApiError(request="GET /secret", status=500, reason="InternalError", message="etcdserver: request timed out"),
    429: TooManyRequestsError(request="GET /secret", status=429, reason="TooManyRequests", message="try again later"),
    403: ApiError(request="GET /secret", status=403, reason="Forbidden", message="no"),
}


@pytest.mark.parametrize("error", [AWAY, STATUS[500], STATUS[429]])
async def test_command_waits_for_an_api_server_that_cannot_answer(api: Any, error: ClusterError) -> None:
    """A request that was not answered, or not executed, is repeated."""
    api.put_configuration(None)
    api.before = _failing(api.before, error, times=3)
    await rotate(api, settings=FAST, report=lambda _line: None)


async def test_command_ends_at_a_refusal(api: Any) -> None:
    """Waiting does not help against a missing right."""
    api.before = _failing(api.before, STATUS[403], times=1)
    with pytest.raises(ApiError, match="Forbidden"):
        await rotate(api, settings=FAST, report=lambda _line: None)


async def test_command_times_out_without_an_api_server(api: Any) -> None:
    """The error says what the command was waiting for."""
    api.before = _failing(api.before, AWAY, times=10**6)
    settings = RotateSettings(poll_seconds=0.001, timeout_seconds=0.05)
    with pytest.raises(RotationError, match=r"not complete within 0.05 s: the API server is away; "):
        await rotate(api, settings=settings, report=lambda _line: None)


def _failing(
    alive: Callable[[str, str], Awaitable[None]], error: ClusterError, *, times: int
) -> Callable[[str, str], Awaitable[None]]:
    left = times

    async def before(method: str, path: str) -> None:
        nonlocal left
        if left:
            left -= 1
            raise error
        await alive(method, path)

    return before
