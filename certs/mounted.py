"""A certificate that another party puts into a folder: an administrator, or cert-manager through a mounted Secret.

The folder has the files of a Secret of type kubernetes.io/tls: `tls.crt`, `tls.key` and, optionally, `ca.crt`. A
kubelet replaces all files at once by pointing the link `..data` at a new directory, so all are read from its target.
"""

import ssl
from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509

from certs.ca_bundle import to_pem
from certs.leaf import Leaf, ServerNames, UnusableLeafError, check_handshake, context_from_pem

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
_CURRENT = "..data"


class MountedPair(msgspec.Struct, frozen=True):
    """The content of the folder at one time.

    Attributes:
        leaf: made of `tls.crt` and `tls.key`; we never renew it.
        trusted: the certificates of `ca.crt`; without that file, the last certificate of `tls.crt`.
    """

    leaf: Leaf
    trusted: tuple[x509.Certificate, ...]


class MountedSource:
    """Serves the pair of a folder; an unusable pair never replaces a usable one.

    Attributes:
        pair: the pair in service.
    """

    def __init__(self, folder: Path, *, names: ServerNames, now: datetime) -> None:
        """Read the first pair; raises what `read` raises."""
        self._folder = folder
        self._names = names
        self.pair = self.read(now=now)

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""
        return self.pair.leaf

    def context(self, _server_name: str | None) -> ssl.SSLContext:
        """Return the context of the leaf in service."""
        return self.pair.leaf.context

    def authority_of(self, context: ssl.SSLContext) -> x509.Certificate | None:
        """Return the authority of the leaf in service, or None where `context` does not serve that leaf."""
        return self.leaf.authority if context is self.leaf.context else None

    def read(self, *, now: datetime) -> MountedPair:
        """Return the pair that is in the folder now, after a test handshake with a client that trusts its `ca.crt`.

        Raises:
            UnusableLeafError: the message names the file, the problem and the remedy.
        """
        certificate_pem, key_pem, authority_pem = self._contents()
        chain = self._certificates(CERTIFICATE, certificate_pem)
        trusted = self._certificates(AUTHORITY, authority_pem) if authority_pem is not None else chain[-1:]
        begin, end = chain[0].not_valid_before_utc, chain[0].not_valid_after_utc
        if not begin <= now < end:
            raise self._unusable(
                CERTIFICATE,
                f"is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, not on {now:%Y-%m-%d %H:%M}",
            )
        try:
            context = context_from_pem(certificate_pem + b"\n" + key_pem)
        except (ssl.SSLError, ValueError) as error:
            raise self._unusable(KEY, f"is not the unencrypted key of {CERTIFICATE} ({error})") from None
        try:
            check_handshake(context, trusted_pem=to_pem(trusted), names=self._names)
        except UnusableLeafError as error:
            raise self._unusable(CERTIFICATE, f"is unusable: {error}") from None
        issuer = next((each for each in trusted if each.subject == chain[-1].issuer), trusted[-1])
        return MountedPair(Leaf(context=context, certificate=chain[0], authority=issuer, renew_at=end), tuple(trusted))

    def _contents(self) -> tuple[bytes, bytes, bytes | None]:
        current = self._folder / _CURRENT
        try:
            folder = current.resolve(strict=True) if current.is_symlink() else self._folder
            authority = folder / AUTHORITY
            return (
                (folder / CERTIFICATE).read_bytes(),
                (folder / KEY).read_bytes(),
                authority.read_bytes() if authority.exists() else None,
            )
        except OSError as error:
            name = Path(str(error.filename)).name
            raise self._unusable(name, f"cannot be read ({error.strerror})") from None

    def _certificates(self, file: str, pem: bytes) -> list[x509.Certificate]:
        try:
            return x509.load_pem_x509_certificates(pem)
        except ValueError as error:
            raise self._unusable(file, f"is not a PEM certificate ({error})") from None

    def _unusable(self, file: str, problem: str) -> UnusableLeafError:
        return UnusableLeafError(
            f"{self._folder / file} {problem}; provide {CERTIFICATE}, {KEY} and {AUTHORITY} of one certificate for"
            f" {', '.join(self._names.all())} in this folder: they are reloaded without a restart"
        )
