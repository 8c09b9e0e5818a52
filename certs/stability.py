"""Measures how long a caBundle has been unchanged, by the clock of the process that watches it."""

from collections.abc import Callable

from cryptography import x509

from certs.ca_bundle import Published


class Stability:
    """API servers watch the configuration; the settle time is how long they may take to observe a change."""

    def __init__(self, *, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last: Published | None = None
        self._since = 0.0

    def record(self, published: Published) -> bool:
        """Record what is published now; return whether an entry has changed since the last call."""
        changed = self._last is None or self._last.revision != published.revision
        if changed:
            self._since = self._clock()
        self._last = published
        return changed

    def has_held(self, certificate: x509.Certificate) -> bool:
        """Whether every entry has held `certificate` for the settle time."""
        return self._last is not None and certificate in self._last.common_certificates and self.is_stable

    @property
    def is_stable(self) -> bool:
        """Whether nothing has changed for the settle time."""
        return self._last is not None and self._clock() - self._since >= self._seconds
