"""Since when a caBundle stands unchanged, by the clock of who looks at it."""

from collections.abc import Callable

from cryptography import x509

from certs.ca_bundle import Published


class Settling:
    """API servers watch the configuration; the settle time is how long they have to hear of a change."""

    def __init__(self, *, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: Published | None = None
        self._since = 0.0

    def observe(self, published: Published) -> bool:
        """Take note of what is published; answer whether an entry has changed since the last time."""
        changed = self._seen is None or self._seen.revision != published.revision
        if changed:
            self._since = self._clock()
        self._seen = published
        return changed

    def holds(self, certificate: x509.Certificate) -> bool:
        """Whether every entry has held `certificate` for the settle time."""
        return self._seen is not None and certificate in self._seen.certificates and self.is_over

    @property
    def is_over(self) -> bool:
        """Whether nothing has changed for the settle time."""
        return self._seen is not None and self._clock() - self._since >= self._seconds
