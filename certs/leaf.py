"""The certificate that a server shows: short-lived, in memory only, and tried out before anybody sees it."""

import ssl
import tempfile
from datetime import datetime, timedelta
from ipaddress import ip_address

import msgspec
from cryptography.x509 import Certificate

from certs.x509 import KeyPair, issue

LIFETIME = timedelta(days=7)
LAST_CALL = timedelta(hours=1)
"""A leaf that ends sooner is as good as over: clocks differ, and callers take a while to go elsewhere."""
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
    """A leaf that does not stand a client's verification, or cannot be shown at all."""


class Leaf(msgspec.Struct, frozen=True):
    """A certificate in service.

    Attributes:
        context: what a TLS server shows.
        certificate: the leaf itself.
        authority: who signed it.
        renew_at: from when a new one is due, long before this one ends.
    """

    context: ssl.SSLContext
    certificate: Certificate
    authority: Certificate
    renew_at: datetime

    @property
    def ends_at(self) -> datetime:
        """When clients stop believing it."""
        return self.certificate.not_valid_after_utc

    def lasts(self, now: datetime) -> bool:
        """Whether it can be called in service: more than `LAST_CALL` is left of it."""
        return now < self.ends_at - LAST_CALL


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
    context = loaded(pair.certificate_pem + pair.key_pem)
    prove(context, trusted_pem=authority.certificate_pem, names=names)
    end = pair.certificate.not_valid_after_utc
    return Leaf(
        context=context,
        certificate=pair.certificate,
        authority=authority.certificate,
        renew_at=min(now + _RENEW_AFTER, now + (end - now) * 2 / 3),
    )


def server_side() -> ssl.SSLContext:
    """Answer an empty context with our terms for a TLS server: 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def loaded(pem: bytes) -> ssl.SSLContext:
    """Answer a context that shows the chain in `pem`, with the key in it.

    `ssl` reads files only, so it goes through one that only we may read and that is gone at once.

    Raises:
        ssl.SSLError: it is no such thing, or key and certificate do not belong together.
    """
    context = server_side()
    with tempfile.NamedTemporaryFile(prefix="leaf-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=lambda: "")  # never ask a terminal for one
    return context


def prove(context: ssl.SSLContext, *, trusted_pem: bytes, names: ServerNames) -> None:
    """Shake hands in memory, once per name, with a client that trusts `trusted_pem` only.

    Raises:
        UnusableLeafError: naming the name and what the client says.
    """
    client_context = ssl.create_default_context(cadata=trusted_pem.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for name in names.all():
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
