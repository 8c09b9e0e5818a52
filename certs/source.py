"""Certificate sources: a TLS server asks its source for a certificate at every handshake.

So the listener never restarts: new connections get a renewed certificate at once, and open connections stay open.
`IssuedSource` issues its own certificates; `certs.mounted.MountedSource` serves those that another program, such as
cert-manager, puts into a folder.
"""

import ssl
from datetime import datetime
from typing import Protocol

from cryptography import x509

from certs.leaf import Leaf, ServerNames, issue_leaf, server_context
from certs.x509 import KeyPair


class CertificateSource(Protocol):
    """Supplies the certificate for a new connection."""

    def context(self, server_name: str | None) -> ssl.SSLContext:
        """Return the context with the current certificate for a client that calls `server_name`."""


class LeafSource(CertificateSource, Protocol):
    """A source that also exposes its leaf."""

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""

    def authority_of(self, context: ssl.SSLContext) -> x509.Certificate | None:
        """Return the authority of the certificate in `context`, or None where that certificate is out of service."""


class IssuedSource:
    """Serves leaves that it issues itself, in memory, with an authority that the caller supplies.

    Clients that call the canary name get the next leaf, where one is prepared.
    """

    def __init__(
        self, authority: KeyPair, *, names: ServerNames, now: datetime, canary: str = "", generation: str = ""
    ) -> None:
        """Issue the first leaf; raises what `certs.leaf.issue_leaf` raises."""
        self._canary = canary
        dns_names = dict.fromkeys((*names.dns_names, *filter(None, (canary,))))
        self._names = ServerNames(tuple(dns_names), names.ip_addresses)
        self._generation = generation
        self._leaf = issue_leaf(authority, names=self._names, now=now)
        self._next: Leaf | None = None

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""
        return self._leaf

    def context(self, server_name: str | None) -> ssl.SSLContext:
        """Return the context of the leaf in service, or of the next leaf for the canary name."""
        if self._next is not None and server_name == self._canary:
            return self._next.context
        return self._leaf.context

    def authority_of(self, context: ssl.SSLContext) -> x509.Certificate | None:
        """Return the authority of the current or next leaf, whichever has this `context`, or None."""
        matching = (each for each in (self._leaf, self._next) if each is not None and each.context is context)
        return next((each.authority for each in matching), None)

    def prepare_next(self, authority: KeyPair | None, *, now: datetime) -> None:
        """Issue the next leaf with `authority`, unless that is done already; discard it where `authority` is None."""
        if authority is None:
            self._next = None
        elif self._next is None or _is_due(self._next, authority, now):
            self._next = issue_leaf(authority, names=self._names, now=now)

    def renew(self, authority: KeyPair, *, generation: str = "", now: datetime) -> bool:
        """Put a new leaf into service if one is due, or if `authority` or `generation` have changed.

        A leaf of the same authority that would end earlier is rejected: the clock was set back, and the leaf in service
        is the better one whichever clock is right.
        """
        if generation == self._generation and not _is_due(self._leaf, authority, now):
            return False
        leaf = self._next
        if leaf is None or _is_due(leaf, authority, now):
            leaf = issue_leaf(authority, names=self._names, now=now)
        if leaf.authority == self._leaf.authority and leaf.ends_at < self._leaf.ends_at:
            return False
        self._leaf, self._generation, self._next = leaf, generation, None
        return True


def listener_context(source: CertificateSource) -> ssl.SSLContext:
    """Return the context for a listener that asks `source` at each handshake."""

    def select(connection: ssl.SSLObject, server_name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = source.context(server_name)

    context = server_context()
    # OpenSSL decides before the callback whether to request a client certificate, and verifies it by the authorities of
    # the context that the callback selects.
    context.verify_mode = source.context(None).verify_mode
    context.sni_callback = select
    return context


def _is_due(leaf: Leaf, authority: KeyPair, now: datetime) -> bool:
    return now >= leaf.renew_at or leaf.authority != authority.certificate
