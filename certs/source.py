"""Where a TLS server takes its certificate from, anew for every connection.

The listener never restarts: it asks its source at each handshake, so a renewed certificate is shown from the next
connection on and open connections stay open. `IssuedSource` issues its own; `certs.mounted.MountedSource` shows what
somebody else puts into a folder, cert-manager for one.
"""

import ssl
from datetime import datetime
from typing import Protocol

from cryptography import x509

from certs.leaf import Leaf, ServerNames, issue_leaf, server_side
from certs.x509 import KeyPair


class CertificateSource(Protocol):
    """Whatever knows the certificate to show now."""

    def context(self, server_name: str | None) -> ssl.SSLContext:
        """Answer the context of the certificate to show now to who calls `server_name`."""


class LeafSource(CertificateSource, Protocol):
    """A source that can say what it shows."""

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""

    def authority_of(self, context: ssl.SSLContext) -> x509.Certificate | None:
        """Answer who signed what a connection with `context` showed, None where it is out of service."""


class IssuedSource:
    """Shows leaves that it issues itself, in memory, from an authority that it is handed.

    Who calls the canary name is shown the leaf that comes next, if one is rehearsed.
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
        self._rehearsed: Leaf | None = None

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""
        return self._leaf

    def context(self, server_name: str | None) -> ssl.SSLContext:
        """Answer the context of the leaf in service, or of the one that comes next."""
        if self._rehearsed is not None and server_name == self._canary:
            return self._rehearsed.context
        return self._leaf.context

    def authority_of(self, context: ssl.SSLContext) -> x509.Certificate | None:
        """Answer whose leaf, in service or rehearsed, `context` shows."""
        shown = (each for each in (self._leaf, self._rehearsed) if each is not None and each.context is context)
        return next((each.authority for each in shown), None)

    def rehearse(self, authority: KeyPair | None, *, now: datetime) -> None:
        """Make ready the leaf that comes next, of `authority`; None where none does."""
        if authority is None:
            self._rehearsed = None
        elif self._rehearsed is None or _is_due(self._rehearsed, authority, now):
            self._rehearsed = issue_leaf(authority, names=self._names, now=now)

    def renew(self, authority: KeyPair, *, generation: str = "", now: datetime) -> bool:
        """Put a new leaf into service if one is due, or `authority` or `generation` are others than before.

        A leaf of the same authority that would end earlier is not taken: the clock was set back, and the one in service
        is the better one whichever clock is right.
        """
        if generation == self._generation and not _is_due(self._leaf, authority, now):
            return False
        made = self._rehearsed
        if made is None or _is_due(made, authority, now):
            made = issue_leaf(authority, names=self._names, now=now)
        if made.authority == self._leaf.authority and made.ends_at < self._leaf.ends_at:
            return False
        self._leaf, self._generation, self._rehearsed = made, generation, None
        return True


def listener_context(source: CertificateSource) -> ssl.SSLContext:
    """Answer the context for a listener that asks `source` at each handshake."""

    def show(connection: ssl.SSLObject, server_name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = source.context(server_name)

    context = server_side()
    # Whether clients are asked for a certificate is settled before the callback; by whose authority, after it.
    context.verify_mode = source.context(None).verify_mode
    context.sni_callback = show
    return context


def _is_due(leaf: Leaf, authority: KeyPair, now: datetime) -> bool:
    return now >= leaf.renew_at or leaf.authority != authority.certificate
