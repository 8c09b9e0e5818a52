"""The certificate that a server shows: short-lived, in memory only, and tried out before anybody sees it."""

import ssl
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address

import msgspec
from cryptography.x509 import Certificate

from certs.x509 import KeyPair, issue

LIFETIME = timedelta(days=7)
_RENEW_AFTER = LIFETIME * 2 / 3
_HANDSHAKE_TURNS = 4


class ServerNames(msgspec.Struct, frozen=True):
    """By which names a server is called: at least one DNS name or IP address."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        """Answer the names and the addresses, as a client would verify them."""
        return (*self.dns_names, *(str(ip_address(address)) for address in self.ip_addresses))


class UnusableLeafError(Exception):
    """A leaf that was just issued does not stand a client's verification."""


class Leaf(msgspec.Struct, frozen=True):
    """A certificate in service.

    Attributes:
        context: what a TLS server shows.
        authority: who signed it.
        renew_at: from when a new one is due, long before this one ends.
        ends_at: when clients stop believing it.
    """

    context: ssl.SSLContext
    authority: Certificate
    renew_at: datetime
    ends_at: datetime


def issue_leaf(authority: KeyPair, *, names: ServerNames, now: datetime) -> Leaf:
    """Issue a leaf for `names` and prove it by a handshake with a client that trusts `authority` only.

    Raises:
        ValueError: there is no name, an address is none, or the authority has expired.
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
    context = _server_context(pair)
    _prove(context, authority_pem=authority.certificate_pem, names=names.all())
    end = pair.certificate.not_valid_after_utc
    return Leaf(
        context=context,
        authority=authority.certificate,
        renew_at=min(now + _RENEW_AFTER, now + (end - now) * 2 / 3),
        ends_at=end,
    )


def server_side() -> ssl.SSLContext:
    """Answer an empty context with our terms for a TLS server: 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _server_context(pair: KeyPair) -> ssl.SSLContext:
    """Load a pair; `ssl` reads files only, so it goes through one that only we may read and that is gone at once."""
    context = server_side()
    with tempfile.NamedTemporaryFile(prefix="leaf-") as file:
        file.write(pair.certificate_pem + pair.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _prove(context: ssl.SSLContext, *, authority_pem: bytes, names: Sequence[str]) -> None:
    """Shake hands in memory, once per name."""
    client_context = ssl.create_default_context(cadata=authority_pem.decode())
    for name in names:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        try:
            for _ in range(_HANDSHAKE_TURNS):
                done = [_step(side) for side in (client, server)]
                if all(done):
                    break
            else:
                raise UnusableLeafError(f"the handshake as {name} does not end")
        except ssl.SSLError as error:
            raise UnusableLeafError(f"a client that calls {name} refuses the new certificate: {error}") from error


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
