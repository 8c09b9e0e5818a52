"""Certificates from a folder, served by a real TLS server."""

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
from certs.mounted_reconciler import MountedReconciler
from certs.probe import problem, served_certificate
from certs.source import listener_context
from certs.x509 import KeyPair, issue, new_authority

DAY = timedelta(days=1)
NAMES = ServerNames(dns_names=("webhook.svc", "webhook.ns.svc"), ip_addresses=("127.0.0.1",))
SETTLE = 10.0


def now() -> datetime:
    """Return the real time, which TLS uses."""
    return datetime.now(UTC)


def signer(name: str = "another issuer") -> KeyPair:
    """Return a new authority."""
    return new_authority(name, lifetime=30 * DAY, now=now())


def leaf(authority: KeyPair, *, lifetime: timedelta = 10 * DAY, names: ServerNames = NAMES) -> KeyPair:
    """Return a new pair for the folder."""
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
        """Replace all files at once, as a kubelet does."""
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
        """Swap in a pair and its authority."""
        self.swap(tls_crt=pair.certificate_pem, tls_key=pair.key_pem, ca_crt=authority.certificate_pem)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return an empty folder."""
    return Folder(tmp_path)


class Clock:
    """A monotonic clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@asynccontextmanager
async def served(source: MountedSource) -> AsyncIterator[str]:
    """Serve a source with an echo server; yield HOST:PORT."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=listener_context(source)) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def reconciler_for(
    api: Any, source: MountedSource, *, publishes: bool = True, clock: Clock | None = None
) -> MountedReconciler:
    """Return a reconciler of the folder of a source."""
    return MountedReconciler(
        api,
        source,
        names=NAMES,
        configuration="tranche",
        publishes=publishes,
        settle_seconds=SETTLE if clock else 0,
        clock=clock or Clock(),
    )


async def test_swapped_secret_is_served_without_a_restart_and_connections_stay_open(api: Any, folder: Folder) -> None:
    """A kubelet swaps the mount: new connections get the new pair, an open one continues with the old."""
    authority = signer()
    folder.put(authority, leaf(authority))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None)
    reconciler = reconciler_for(api, source)
    await reconciler.reconcile(now=now())
    async with served(source) as address:
        trusting = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        first = await served_certificate(address)
        folder.put(authority, leaf(authority))
        await reconciler.reconcile(now=now())
        second = await served_certificate(address)
        assert second not in (first, None)
        assert not await problem(address, authority=authority.certificate)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()


def faulty(folder: Folder, authority: KeyPair, fault: str) -> None:
    """Put an unusable pair into the folder."""
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
    "half-written": r"tls\.crt is not a PEM certificate",
    "half-written key": r"tls\.key is not the unencrypted key of tls\.crt",
    "mismatched": r"tls\.key is not the unencrypted key of tls\.crt",
    "no key": r"tls\.key cannot be read \(No such file",
    "expired": r"tls\.crt is valid from .* to .*, not on ",
    "name missing": r"tls\.crt is unusable: a client that connects to webhook\.ns\.svc rejects",
    "another authority": r"tls\.crt is unusable: a client that connects to webhook\.svc rejects",
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.items())
async def test_unusable_pair_replaces_nothing(api: Any, folder: Folder, fault: str, words: str) -> None:
    """The error names the file; the pair in service stays, and the next usable one replaces it."""
    authority = signer()
    folder.put(authority, leaf(authority))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None)
    reconciler = reconciler_for(api, source)
    await reconciler.reconcile(now=now())
    async with served(source) as address:
        first = await served_certificate(address)
        faulty(folder, authority, fault)
        with pytest.raises(UnusableLeafError, match=words):
            await reconciler.reconcile(now=now())
        assert await served_certificate(address) == first
        assert not await problem(address, authority=authority.certificate)
        folder.put(authority, leaf(authority))
        await reconciler.reconcile(now=now())
        assert await served_certificate(address) != first


@pytest.mark.parametrize(("fault", "words"), FAULTS.items())
def test_unusable_pair_is_not_served_at_start(folder: Folder, fault: str, words: str) -> None:
    """Every fault at the start is an error with the remedy, and nothing is served."""
    faulty(folder, signer(), fault)
    with pytest.raises(UnusableLeafError, match=words) as caught:
        MountedSource(folder.path, names=NAMES, now=now())
    assert "reloaded without a restart" in str(caught.value)
    assert "PRIVATE" not in str(caught.value)


async def test_new_authority_is_trusted_before_its_leaf_is_served(api: Any, folder: Folder) -> None:
    """The caBundle holds both for the settle time, then the new pair is served; the old authority stays."""
    old, new, clock = signer("old"), signer("new"), Clock()
    folder.put(old, leaf(old))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(None, None)
    reconciler = reconciler_for(api, source, clock=clock)
    assert await reconciler.reconcile(now=now()) == ("caBundle of tranche",)
    folder.put(new, leaf(new))
    both = ca_bundle.to_pem((old.certificate, new.certificate))
    for elapsed in (0.0, SETTLE - 1):
        clock.now = elapsed
        await reconciler.reconcile(now=now())
        assert api.bundles() == [both] * 2
        assert source.leaf.authority == old.certificate
    clock.now = SETTLE
    await reconciler.reconcile(now=now())
    assert source.leaf.authority == new.certificate
    assert api.bundles() == [both] * 2
    later = old.certificate.not_valid_after_utc + timedelta(hours=1)
    source.pair = source.read(now=now())
    with pytest.raises(UnusableLeafError, match="not on"):
        await reconciler.reconcile(now=later)
    assert api.bundles() == [ca_bundle.to_pem((new.certificate,))] * 2


async def test_overwritten_bundle_gets_the_authority_of_the_files_back(api: Any, folder: Folder) -> None:
    """The next reconciliation restores it."""
    authority = signer()
    folder.put(authority, leaf(authority))
    api.put_configuration(None)
    reconciler = reconciler_for(api, MountedSource(folder.path, names=NAMES, now=now()))
    await reconciler.reconcile(now=now())
    api.put_configuration(b"")
    assert await reconciler.reconcile(now=now()) == ("caBundle of tranche",)
    assert api.bundles() == [authority.certificate_pem]


async def test_with_cert_manager_the_bundle_is_read_but_never_written(api: Any, folder: Folder) -> None:
    """A new pair is held back until cainjector has published its authority, so every client can verify it."""
    old, new, clock = signer("old"), signer("new"), Clock()
    folder.put(old, leaf(old))
    source = MountedSource(folder.path, names=NAMES, now=now())
    reconciler = reconciler_for(api, source, publishes=False, clock=clock)
    api.put_configuration(None)
    with pytest.raises(UnusableLeafError, match="MutatingWebhookConfiguration tranche: entry w0.* has no caBundle"):
        await reconciler.reconcile(now=now())
    api.put_configuration(old.certificate_pem)
    await reconciler.reconcile(now=now())
    folder.put(new, leaf(new))
    clock.now += SETTLE
    await reconciler.reconcile(now=now())
    assert source.leaf.authority == old.certificate
    api.put_configuration(old.certificate_pem + new.certificate_pem)  # as CAInjectorMerging leaves it
    await reconciler.reconcile(now=now())
    assert source.leaf.authority == old.certificate
    clock.now += SETTLE
    await reconciler.reconcile(now=now())
    assert source.leaf.authority == new.certificate
    assert api.writes() == []


async def test_expiring_pair_is_replaced_even_by_an_untrusted_one(api: Any, folder: Folder) -> None:
    """An untrusted pair is not worse than an expired one."""
    old, new = signer("old"), signer("new")
    folder.put(old, leaf(old, lifetime=timedelta(minutes=30)))
    source = MountedSource(folder.path, names=NAMES, now=now())
    api.put_configuration(old.certificate_pem)
    assert not source.leaf.is_usable(now())
    folder.put(new, leaf(new))
    with pytest.raises(UnusableLeafError, match="caBundle of entry"):
        await reconciler_for(api, source, publishes=False).reconcile(now=now())
    assert source.leaf.authority == new.certificate


def test_rsa_key_and_missing_ca_file_are_accepted(tmp_path: Path) -> None:
    """RSA is cert-manager's default; without a ca.crt, the last certificate of the chain is trusted."""
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


def test_encrypted_key_is_refused_without_a_prompt(folder: Folder) -> None:
    """A process that waits for a password would not serve."""
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


def test_swap_during_a_read_does_not_mix_pairs(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet swaps between the reads of certificate and key: both come from the same directory."""
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
