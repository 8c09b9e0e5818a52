"""Certificates that somebody else puts into a folder, shown by a real TLS server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs import ca_bundle
from certs.leaf import ServerNames, UnusableLeafError
from certs.mounted import MountedSource
from certs.mounted_upkeep import MountedUpkeep
from certs.probe import objection, shown
from certs.source import listener_context
from certs.x509 import KeyPair, issue, new_authority

DAY = timedelta(days=1)
NAMES = ServerNames(dns_names=("webhook.svc", "webhook.ns.svc"), ip_addresses=("127.0.0.1",))
SETTLE = 10.0


def now() -> datetime:
    """TLS goes by the real clock."""
    return datetime.now(UTC)


def signer(name: str = "somebody else") -> KeyPair:
    """Make an authority."""
    return new_authority(name, lifetime=30 * DAY, now=now())


def leaf(authority: KeyPair, *, lifetime: timedelta = 10 * DAY, names: ServerNames = NAMES) -> KeyPair:
    """Make a pair that is to be put into the folder."""
    return issue(
        authority,
        common_name="webhook",
        dns_names=names.dns_names,
        ip_addresses=names.ip_addresses,
        lifetime=lifetime,
        now=now(),
        server=True,
    )


class Folder:
    """A mounted Secret: a kubelet writes a new directory, then points `..data` at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0

    def swap(self, **files: bytes) -> None:
        """Replace all at once, as a kubelet does."""
        self._number += 1
        directory = self.path / f"..{self._number}"
        directory.mkdir()
        for name, content in files.items():
            (directory / name.replace("_", ".")).write_bytes(content)
            link = self.path / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(Path("..data") / link.name)
        (self.path / "..tmp").symlink_to(directory.name)
        (self.path / "..tmp").rename(self.path / "..data")

    def put(self, authority: KeyPair, pair: KeyPair) -> None:
        """Swap in a pair and who signed it."""
        self.swap(tls_crt=pair.certificate_pem, tls_key=pair.key_pem, ca_crt=authority.certificate_pem)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty one."""
    return Folder(tmp_path)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Answer them."""
        return self.now


@asynccontextmanager
async def served(source: MountedSource) -> AsyncIterator[str]:
    """Serve it; answer where. What a client sends is sent back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=listener_context(source)) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def upkeep(api: Any, source: MountedSource, *, publishes: bool = True, clock: Clock | None = None) -> MountedUpkeep:
    """Follow the folder of a source."""
    return MountedUpkeep(
        api,
        source,
        names=NAMES,
        configuration="tranche",
        publishes=publishes,
        settle_seconds=SETTLE if clock else 0,
        clock=clock or Clock(),
    )


async def test_a_swapped_secret_is_shown_without_a_restart_and_connections_live_on(api: Any, folder: Folder) -> None:
    """A kubelet swaps the mount: new connections get the new pair, an open one goes on with the old."""
    authority = signer()
    folder.put(authority, leaf(authority))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None)
    keeping = upkeep(api, source)
    await keeping.once(now=now())
    async with served(source) as address:
        trusting = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        first = await shown(address)
        folder.put(authority, leaf(authority))
        await keeping.once(now=now())
        second = await shown(address)
        assert second not in (first, None)
        assert not await objection(address, authority=authority.certificate)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()


def faulty(folder: Folder, authority: KeyPair, fault: str) -> None:
    """Put something unusable there."""
    good, other = leaf(authority), leaf(authority)
    ca = {"ca_crt": authority.certificate_pem}
    match fault:
        case "half-written":
            folder.swap(tls_crt=good.certificate_pem[:-100], tls_key=good.key_pem, **ca)
        case "half-written key":
            folder.swap(tls_crt=good.certificate_pem, tls_key=good.key_pem[:40], **ca)
        case "mismatched":
            folder.swap(tls_crt=good.certificate_pem, tls_key=other.key_pem, **ca)
        case "no key":
            (folder.path / "tls.key").unlink(missing_ok=True)
            folder.swap(tls_crt=good.certificate_pem, **ca)
        case "expired":
            old = leaf(authority, lifetime=timedelta(seconds=-1))
            folder.swap(tls_crt=old.certificate_pem, tls_key=old.key_pem, **ca)
        case "name missing":
            less = leaf(authority, names=ServerNames(NAMES.dns_names[:1], NAMES.ip_addresses))
            folder.swap(tls_crt=less.certificate_pem, tls_key=less.key_pem, **ca)
        case "another authority":
            folder.swap(tls_crt=good.certificate_pem, tls_key=good.key_pem, ca_crt=signer("x").certificate_pem)
        case _:
            raise AssertionError(fault)


FAULTS = {
    "half-written": r"tls\.crt: holds no PEM certificate",
    "half-written key": r"tls\.key: is not the unencrypted key of tls\.crt",
    "mismatched": r"tls\.key: is not the unencrypted key of tls\.crt",
    "no key": r"tls\.key: cannot be read \(No such file",
    "expired": r"tls\.crt: is valid from .* to .*, not on ",
    "name missing": r"tls\.crt: a client that calls webhook\.ns\.svc refuses",
    "another authority": r"tls\.crt: a client that calls webhook\.svc refuses",
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.items())
async def test_what_is_unusable_replaces_nothing(api: Any, folder: Folder, fault: str, words: str) -> None:
    """The reason names the file; the pair in service is served on, and the next good one is taken."""
    authority = signer()
    folder.put(authority, leaf(authority))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None)
    keeping = upkeep(api, source)
    await keeping.once(now=now())
    async with served(source) as address:
        first = await shown(address)
        faulty(folder, authority, fault)
        with pytest.raises(UnusableLeafError, match=words):
            await keeping.once(now=now())
        assert await shown(address) == first
        assert not await objection(address, authority=authority.certificate)
        folder.put(authority, leaf(authority))
        await keeping.once(now=now())
        assert await shown(address) != first


@pytest.mark.parametrize(("fault", "words"), FAULTS.items())
def test_nothing_unusable_is_ever_shown_at_start(folder: Folder, fault: str, words: str) -> None:
    """Expired at boot and all the others: an error with the remedy, and no server."""
    faulty(folder, signer(), fault)
    with pytest.raises(UnusableLeafError, match=words) as caught:
        MountedSource(folder.path, names=NAMES, now=now())
    assert "read again without a restart" in str(caught.value)
    assert "PRIVATE" not in str(caught.value)


async def test_a_new_authority_is_believed_before_its_leaf_is_shown(api: Any, folder: Folder) -> None:
    """Old and new stand in the caBundle for the settle time, then the new pair is shown; the old one stays."""
    old, new, clock = signer("old"), signer("new"), Clock()
    folder.put(old, leaf(old))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None, None)
    keeping = upkeep(api, source, clock=clock)
    assert await keeping.once(now=now()) == ("caBundle of tranche",)
    folder.put(new, leaf(new))
    both = ca_bundle.joined((old.certificate, new.certificate))
    for elapsed in (0.0, SETTLE - 1):
        clock.now = elapsed
        await keeping.once(now=now())
        assert api.bundles() == [both] * 2
        assert source.leaf.authority == old.certificate
    clock.now = SETTLE
    await keeping.once(now=now())
    assert source.leaf.authority == new.certificate
    assert api.bundles() == [both] * 2
    later = old.certificate.not_valid_after_utc + timedelta(hours=1)
    source.pair = source.read(now=now())
    with pytest.raises(UnusableLeafError, match="not on"):
        await keeping.once(now=later)
    assert api.bundles() == [ca_bundle.joined((new.certificate,))] * 2


async def test_an_overwritten_bundle_gets_the_authority_of_the_files_back(api: Any, folder: Folder) -> None:
    """At the next look."""
    authority = signer()
    folder.put(authority, leaf(authority))
    api.put_configuration(None)
    keeping = upkeep(api, MountedSource(folder.path, names=NAMES, now=now()))
    await keeping.once(now=now())
    api.put_configuration(b"")
    assert await keeping.once(now=now()) == ("caBundle of tranche",)
    assert api.bundles() == [authority.certificate_pem]


async def test_with_cert_manager_the_bundle_is_awaited_and_never_written(api: Any, folder: Folder) -> None:
    """A new pair is held back until cainjector has published its authority: nobody is shown what he cannot verify."""
    old, new, clock = signer("old"), signer("new"), Clock()
    folder.put(old, leaf(old))
    source = MountedSource(folder.path, names=NAMES, now=now())
    keeping = upkeep(api, source, publishes=False, clock=clock)
    api.put_configuration(None)
    with pytest.raises(UnusableLeafError, match="MutatingWebhookConfiguration tranche: entry w0.* has no caBundle"):
        await keeping.once(now=now())
    api.put_configuration(old.certificate_pem)
    await keeping.once(now=now())
    folder.put(new, leaf(new))
    clock.now += SETTLE
    await keeping.once(now=now())
    assert source.leaf.authority == old.certificate
    api.put_configuration(old.certificate_pem + new.certificate_pem)  # as CAInjectorMerging leaves it
    await keeping.once(now=now())
    assert source.leaf.authority == old.certificate
    clock.now += SETTLE
    await keeping.once(now=now())
    assert source.leaf.authority == new.certificate
    assert api.writes() == []


async def test_a_pair_that_is_about_to_end_is_replaced_whatever_is_published(api: Any, folder: Folder) -> None:
    """What comes next is no worse."""
    old, new = signer("old"), signer("new")
    folder.put(old, leaf(old, lifetime=timedelta(minutes=30)))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(old.certificate_pem)
    assert not source.leaf.lasts(now())
    folder.put(new, leaf(new))
    with pytest.raises(UnusableLeafError, match="caBundle of entry"):
        await upkeep(api, source, publishes=False).once(now=now())
    assert source.leaf.authority == new.certificate


def test_rsa_and_a_folder_without_authority_are_served(tmp_path: Path) -> None:
    """cert-manager's default key, and a plain pair that somebody wrote: its last certificate is trusted."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self")])
    names = x509.SubjectAlternativeName([x509.DNSName("webhook.svc")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now(), now() + DAY)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    source = MountedSource(tmp_path, names=ServerNames(("webhook.svc",)), now=now() + timedelta(seconds=1))
    assert source.pair.trusted == (certificate,)


def test_an_encrypted_key_is_refused_and_no_terminal_is_asked(folder: Folder) -> None:
    """A process that waits for a password serves nobody."""
    authority = signer()
    pair = leaf(authority)
    sealed = pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    folder.swap(tls_crt=pair.certificate_pem, tls_key=sealed, ca_crt=authority.certificate_pem)
    with pytest.raises(UnusableLeafError, match="not the unencrypted key"):
        MountedSource(folder.path, names=NAMES, now=now())


def test_a_swap_in_the_midst_of_reading_mixes_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet swaps between certificate and key: both are read from where the first one was."""
    authority = signer()
    first = leaf(authority)
    folder.put(authority, first)
    read_bytes = Path.read_bytes

    def swapped(path: Path) -> bytes:
        content = read_bytes(path)
        if path.name == "tls.crt":
            folder.put(authority, leaf(authority))
        return content

    monkeypatch.setattr(Path, "read_bytes", swapped)
    source = MountedSource(folder.path, names=NAMES, now=now())
    assert source.leaf.certificate == first.certificate
    monkeypatch.undo()
    assert source.read(now=now()).leaf.certificate != first.certificate
