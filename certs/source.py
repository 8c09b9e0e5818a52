"""Where a TLS server takes its certificate from, anew for every connection.

The listener never restarts: it asks its source at each handshake, so a renewed certificate is shown from the next
connection on and open connections stay open.
"""

import ssl
from datetime import datetime
from typing import Protocol

from certs.leaf import Leaf, ServerNames, issue_leaf, server_side
from certs.x509 import KeyPair


class CertificateSource(Protocol):
    """Whatever knows the certificate to show now."""

    def context(self) -> ssl.SSLContext:
        """Answer the context of the certificate to show now."""


class IssuedSource:
    """Shows leaves that it issues itself, in memory, from an authority that it is handed."""

    def __init__(self, authority: KeyPair, *, names: ServerNames, now: datetime) -> None:
        """Issue the first leaf; raises what `certs.leaf.issue_leaf` raises."""
        self._names = names
        self._leaf = issue_leaf(authority, names=names, now=now)

    @property
    def leaf(self) -> Leaf:
        """The leaf in service."""
        return self._leaf

    def context(self) -> ssl.SSLContext:
        """Answer the context of the leaf in service."""
        return self._leaf.context

    def renew(self, authority: KeyPair, *, now: datetime) -> bool:
        """Issue a new leaf if one is due or `authority` is another one than before; answer whether it was done."""
        if now < self._leaf.renew_at and authority.certificate == self._leaf.authority:
            return False
        self._leaf = issue_leaf(authority, names=self._names, now=now)
        return True


def listener_context(source: CertificateSource) -> ssl.SSLContext:
    """Answer the context for a listener that asks `source` at each handshake, whatever name the client calls."""

    def show(connection: ssl.SSLObject, _name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = source.context()

    context = server_side()
    # Whether clients are asked for a certificate is settled before the callback; by whose authority, after it.
    context.verify_mode = source.context().verify_mode
    context.sni_callback = show
    return context
