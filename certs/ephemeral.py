"""A server certificate that exists only as long as its process, for clients that do not verify it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ssl import SSLContext

from certs.leaf import Leaf, ServerNames, issue_leaf
from certs.x509 import new_authority


class EphemeralSource:
    """Serves a leaf of an authority that is not stored anywhere, and replaces it before it expires.

    The API server's proxy encrypts the connection to a Service, but does not verify the Service's certificate.
    """

    def __init__(self, names: ServerNames, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._names = names
        self._clock = clock
        self._leaf = self._issue()

    def context(self, _server_name: str | None) -> SSLContext:
        """Return the context of the leaf in service."""
        if self._clock() >= self._leaf.renew_at:
            self._leaf = self._issue()
        return self._leaf.context

    def _issue(self) -> Leaf:
        now = self._clock()
        authority = new_authority(self._names.all()[0][:64], lifetime=timedelta(days=30), now=now)
        return issue_leaf(authority, names=self._names, now=now)
