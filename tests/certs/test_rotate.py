"""The command that rotates, against an API server in memory and real TLS servers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from certs import authority_secret
from certs.keeper import Keeper
from certs.leaf import ServerNames
from certs.probe import objection, split
from certs.rotate import RotationError, rotate
from certs.settings import RotateSettings
from certs.source import IssuedSource, listener_context
from certs.upkeep import IssuedUpkeep
from certs.x509 import new_authority
from cluster import configuration
from cluster.errors import UnreachableError

NAMES = ServerNames(dns_names=("webhook.svc",))
HASTY = RotateSettings(ca=True, settle_seconds=0, poll_seconds=0.001, timeout_seconds=10)


def now() -> datetime:
    """TLS goes by the real clock."""
    return datetime.now(UTC)


def pair() -> Any:
    """Make an authority."""
    return new_authority("tests", lifetime=timedelta(days=30), now=now())


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Serve TLS, or nothing of the kind; answer where."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if context is None:
            writer.write(b"no TLS here, and that for more bytes than a record's header has")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:99999", "http://host:1", "host:1/x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """Before anything is done."""
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        split(address)


def test_addresses_of_every_kind_are_understood() -> None:
    """Names, IPv4, and IPv6 in brackets."""
    assert split("webhook:8443") == ("webhook", 8443)
    assert split("10.0.0.7:8443") == ("10.0.0.7", 8443)
    assert split("[fd00::7]:8443") == ("fd00::7", 8443)


def test_what_is_asked_for_needs_no_value() -> None:
    """`--ca --dry-run`, and `false` where the file says otherwise."""

    def told(*flags: str) -> RotateSettings:
        found = configuration.load(flags, section="certs", settings=RotateSettings, prog="", description="")
        return found.own

    assert told("--ca", "--dry-run", "--settle-seconds", "1") == RotateSettings(ca=True, dry_run=True, settle_seconds=1)
    assert told("--ca", "false") == told() == RotateSettings()


async def test_a_probe_tells_one_authority_from_another() -> None:
    """Both have the same name; the key decides."""
    signer = pair()
    source = IssuedSource(signer, names=NAMES, now=now())
    async with listening(listener_context(source)) as address:
        assert not await objection(address, authority=signer.certificate)
        other = pair()
        assert "no certificate of the new authority" in await objection(address, authority=other.certificate)
        source.renew(other, now=now())
        assert not await objection(address, authority=other.certificate)


async def test_a_probe_that_meets_something_else_says_so() -> None:
    """Somebody who speaks no TLS, and nobody at all."""
    signer = pair()
    async with listening(None) as address:
        assert f"{address} cannot be reached" in await objection(address, authority=signer.certificate)
    assert f"{address} cannot be reached" in await objection(address, authority=signer.certificate)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"probe": ("nowhere",)}, "'nowhere' is no HOST:PORT"),
        ({"drop_old": True}, "drop_old without probe"),
        ({"drop_old": True, "probe": ("h:1",)}, "drop_old without ca"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_done(
    api: Any, told: dict[str, Any], words: str
) -> None:
    """Not one request is sent."""
    with pytest.raises(RotationError, match=words):
        await rotate(api, settings=RotateSettings(**told), report=print)
    assert not api.requests


async def test_without_a_probe_the_state_decides(api: Any) -> None:
    """The new authority signs, is published and believed; the last line says what that leaves open."""
    api.put_configuration(None)
    lines: list[str] = []
    await rotate(api, settings=HASTY, report=lines.append)
    assert "verified by an admission" in lines[-2]
    assert lines[-1].startswith("every replica shows a new one once it has looked")
    stored = (await authority_secret.read(api, now=now())).authorities
    assert len(stored.retired) == 1
    assert api.bundles() == [stored.bundle]


async def test_new_certificates_need_no_new_authority(api: Any) -> None:
    """Without `ca` replicas are asked for new leaves; caBundle and authority stay as they are."""
    api.put_configuration(None)
    keeper = Keeper(api, configuration="tranche", settle_seconds=0)
    signer = (await keeper.tick(now=now())).authorities.signing
    source = IssuedSource(signer, names=NAMES, now=now())
    upkeep, first, bundles = IssuedUpkeep(keeper, source), source.leaf, api.bundles()
    lines: list[str] = []
    async with listening(listener_context(source)) as address, asyncio.TaskGroup() as tasks:
        settings = RotateSettings(settle_seconds=0, poll_seconds=0.001, timeout_seconds=10, probe=(address,))
        rotation = tasks.create_task(rotate(api, settings=settings, report=lines.append))
        while not rotation.done():
            await upkeep.once(now=now())
            await asyncio.sleep(0)
    assert source.leaf.certificate != first.certificate
    assert source.leaf.authority == signer.certificate
    assert api.bundles() == bundles
    assert [line for line in lines if f"{address} shows a new certificate" in line]
    again = source.leaf
    await upkeep.once(now=now())
    assert source.leaf is again


async def test_a_dry_run_changes_nothing_and_says_what_would_be_done(api: Any) -> None:
    """And takes the one step that changes nothing: an admission."""
    api.put_configuration(None)
    await Keeper(api, configuration="tranche", settle_seconds=0).tick(now=now())
    before = api.writes()
    lines: list[str] = []
    await rotate(api, settings=structs.replace(HASTY, dry_run=True), report=lines.append)
    assert api.writes() == before
    assert ("PATCH", api.CANARY) in api.requests
    assert any("would announce another authority" in line for line in lines)
    assert lines[-1] == "dry run: nothing was changed"


async def test_a_dry_run_says_what_stands_in_the_way(api: Any) -> None:
    """No authority yet, nobody at the address, an API server that does not believe the webhook."""
    api.put_configuration(None)
    settings = structs.replace(HASTY, dry_run=True)
    with pytest.raises(RotationError, match="nothing to rotate"):
        await rotate(api, settings=settings, report=print)
    assert not api.objects.get(api.SECRET)
    await Keeper(api, configuration="tranche", settle_seconds=0).tick(now=now())
    with pytest.raises(RotationError, match=r"127\.0\.0\.1:1 shows no certificate"):
        await rotate(api, settings=structs.replace(settings, probe=("127.0.0.1:1",)), report=print)
    api.accepts = lambda: pair().certificate
    with pytest.raises(
        RotationError, match="would not come to its end: the API server reached a replica that does not"
    ):
        await rotate(api, settings=settings, report=print)


async def test_an_authority_that_no_api_server_accepts_never_signs(api: Any) -> None:
    """The rotation waits, and says for what; the old one goes on."""
    api.put_configuration(None)
    keeper = Keeper(api, configuration="tranche", settle_seconds=0)
    old = (await keeper.tick(now=now())).authorities.signing.certificate
    api.accepts = lambda: old
    settings = structs.replace(HASTY, timeout_seconds=0.2)
    with pytest.raises(
        RotationError, match=r"not done within 0.2 s: the API server reached a replica that does not show"
    ):
        await rotate(api, settings=settings, report=lambda _line: None)
    assert (await authority_secret.read(api, now=now())).authorities.signing.certificate == old


async def test_a_rotation_under_way_is_followed(api: Any) -> None:
    """Two people at once make one rotation."""
    api.put_configuration(None)
    keeper = Keeper(api, configuration="tranche", settle_seconds=600)
    old = (await keeper.tick(now=now())).authorities.signing.certificate
    announced = (await keeper.tick(now=now(), replacing=old)).authorities.announced
    lines: list[str] = []
    await rotate(api, settings=HASTY, report=lines.append)
    assert any("under way already" in line for line in lines)
    assert announced is not None
    assert (await authority_secret.read(api, now=now())).authorities.signing.certificate == announced.certificate


async def test_an_api_server_that_is_away_for_a_while_is_waited_for(api: Any) -> None:
    """Each request is tried again until one is answered."""
    api.put_configuration(None)
    api.before = _failing(api.before, times=3)
    await rotate(api, settings=HASTY, report=lambda _line: None)


async def test_who_never_answers_ends_the_command_in_time(api: Any) -> None:
    """The error says what was waited for."""
    api.before = _failing(api.before, times=10**6)
    settings = RotateSettings(poll_seconds=0.001, timeout_seconds=0.05)
    with pytest.raises(RotationError, match=r"not done within 0.05 s: the API server is away; "):
        await rotate(api, settings=settings, report=lambda _line: None)


def _failing(alive: Callable[[str, str], Awaitable[None]], *, times: int) -> Callable[[str, str], Awaitable[None]]:
    left = times

    async def before(method: str, path: str) -> None:
        nonlocal left
        if left:
            left -= 1
            raise UnreachableError("the API server is away")
        await alive(method, path)

    return before
