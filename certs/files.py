"""A certificate that somebody else keeps in files, for callers that need not trust it by our caBundle.

The extender's, whose kube-scheduler has the authority in its own configuration, and may show one of its own. What
the API server calls proves more before it is shown: `certs.mounted`.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from certs.leaf import server_side

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class FileSource:
    """Shows the certificate in a file, and the new one once the file has changed and can be used."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_ca: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files; with `client_ca` clients may show a certificate of these authorities.

        Raises:
            OSError: a file cannot be read, or holds no certificate and key that belong together.
        """
        self._files = (certificate, key, client_ca)
        self._clock = clock
        self._looked_at = clock()
        self._seen = self._stamps()
        self._context = self._load()

    def context(self, _server_name: str | None) -> ssl.SSLContext:
        """Answer the context of the certificate to show now."""
        if self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock()
            self._renew()
        return self._context

    def _renew(self) -> None:
        try:
            stamps = self._stamps()
            if stamps != self._seen:
                self._context, self._seen = self._load(), stamps
                log.info("certificate %s is read anew", self._files[0])
        except OSError as error:
            log.warning("certificate %s cannot be read anew, the old one is shown: %s", self._files[0], error)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for file in self._files if file for stat in [file.stat()])

    def _load(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._files
        context = server_side()
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
