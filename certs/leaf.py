"""The certificate of a server: short-lived, kept in memory only, and tested by a handshake before it is served."""

import ssl
import tempfile
from datetime import datetime, timedelta
from ipaddress import ip_address

import msgspec
from cryptography.x509 import Certificate

from certs.x509 import KeyPair, issue

LIFETIME = timedelta(days=7)
EXPIRY_MARGIN = timedelta(hours=1)
"""A leaf that ends sooner counts as expired: clocks differ, and clients take a while to use another replica."""
_RENEW_AFTER = LIFETIME * 2 / 3
_HANDSHAKE_ROUNDS = 4


class ServerNames(msgspec.Struct, frozen=True):
    """The names by which clients call a server: at least one DNS name or IP address."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        """Return the names and addresses in the form in which a client verifies them."""
        return (*self.dns_names, *(str(ip_address(address)) for address in self.ip_addresses))


class UnusableLeafError(Exception):
    """A leaf that fails a client's verification, or cannot be loaded at all."""


class Leaf(msgspec.Struct, frozen=True):
    """A certificate in service.

    Attributes:
        context: the TLS context that serves it.
        certificate: the leaf itself.
        authority: its signer.
        renew_at: the time from which a replacement is due, long before this leaf ends.
    """

    context: ssl.SSLContext
    certificate: Certificate
    authority: Certificate
    renew_at: datetime

    @property
    def ends_at(self) -> datetime:
        """The time at which clients stop accepting it."""
        return self.certificate.not_valid_after_utc

    def is_usable(self, now: datetime) -> bool:
        """Whether it is valid for more than `EXPIRY_MARGIN`."""
        return now < self.ends_at - EXPIRY_MARGIN


def issue_leaf(authority: KeyPair, *, names: ServerNames, now: datetime) -> Leaf:
    """Issue a leaf for `names` and test it by a handshake with a client that trusts only `authority`.

    Raises:
        ValueError: `names` is empty, an address is invalid, or the authority has expired.
        UnusableLeafError: the handshake failed.
    """
    if not names.all():
        raise ValueError("a server certificate needs at least one DNS name or IP address")
    pair = issue(
        authority,
        common_name=names.all()[0][:64],
        dns_names=names.dns_names,
        ip_addresses=names.ip_addresses,
        lifetime=LIFETIME,
        now=now,
        server=True,
    )
    context = context_from_pem(pair.certificate_pem + pair.key_pem)
    check_handshake(context, trusted_pem=authority.certificate_pem, names=names)
    end = pair.certificate.not_valid_after_utc
    return Leaf(
        context=context,
        certificate=pair.certificate,
        authority=authority.certificate,
        renew_at=min(now + _RENEW_AFTER, now + (end - now) * 2 / 3),
    )


def server_context() -> ssl.SSLContext:
    """Return a context for a TLS server without a certificate yet: TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def context_from_pem(pem: bytes) -> ssl.SSLContext:
    """Return a context that serves the certificate chain in `pem` with the private key in `pem`.

    `ssl` reads only files, so the PEM passes through a file that only this user may read and that is deleted at once.

    Raises:
        ssl.SSLError: `pem` cannot be read, or key and certificate do not belong together.
    """
    context = server_context()
    with tempfile.NamedTemporaryFile(prefix="leaf-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=lambda: "")  # never prompt on a terminal
    return context


def check_handshake(context: ssl.SSLContext, *, trusted_pem: bytes, names: ServerNames) -> None:
    """Perform a TLS handshake in memory, once per name, with a client that trusts only `trusted_pem`.

    Raises:
        UnusableLeafError: a handshake failed; the message has the name and the client's error.
    """
    client_context = ssl.create_default_context(cadata=trusted_pem.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for name in names.all():
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        try:
            for _ in range(_HANDSHAKE_ROUNDS):
                done = [_step(side) for side in (client, server)]
                if all(done):
                    break
            else:
                raise UnusableLeafError(f"the TLS handshake for {name} does not complete")
        except ssl.SSLError as error:
            raise UnusableLeafError(f"a client that connects to {name} rejects the new certificate: {error}") from error


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
