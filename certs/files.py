"""A certificate in files that another program maintains, for clients that do not verify it by our caBundle.

The extender uses it: kube-scheduler has the authority in its own configuration and may present a client certificate.
A certificate for the API server must pass more checks before it is served: see `certs.mounted`.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from certs.leaf import server_context

log = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0


class FileSource:
    """Serves the certificate in a file, and the new one once the file has changed and is usable."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_ca: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files; with `client_ca` clients may present a certificate of these authorities.

        Raises:
            OSError: a file cannot be read, or certificate and key do not belong together.
        """
        self._files = (certificate, key, client_ca)
        self._clock = clock
        self._checked_at = clock()
        self._loaded_stamps = self._stamps()
        self._context = self._load()

    def context(self, _server_name: str | None) -> ssl.SSLContext:
        """Return the context of the current certificate."""
        if self._clock() - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = self._clock()
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            stamps = self._stamps()
            if stamps != self._loaded_stamps:
                self._context, self._loaded_stamps = self._load(), stamps
                log.info("certificate %s was reloaded", self._files[0])
        except OSError as error:
            log.warning(
                "certificate %s cannot be reloaded, the previous one stays in service: %s", self._files[0], error
            )

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for file in self._files if file for stat in [file.stat()])

    def _load(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._files
        context = server_context()
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
