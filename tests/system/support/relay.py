"""A connection of a process to the API server that a test can cut: bytes are passed on as they are, with their TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Relay:
    """Listens on a port of the loopback interface, and passes everything on to another one."""

    def __init__(self, port: int) -> None:
        """Pass on to `port`."""
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False

    def cut(self) -> None:
        """Break all connections, and accept none."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._is_cut = False

    def serve(self) -> None:
        """Accept connections until closed."""
        with contextlib.suppress(OSError):
            while True:
                self._connect(self._listener.accept()[0])

    def close(self) -> None:
        """End."""
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _connect(self, inner: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                inner.close()
                return
            outer = socket.create_connection(("127.0.0.1", self._target))
            self._open |= {inner, outer}
        for source, sink in ((inner, outer), (outer, inner)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            if source in self._open:
                self._open.discard(source)
                source.close()


@contextlib.contextmanager
def relaying(port: int) -> Iterator[Relay]:
    """Run a relay to a port of this machine."""
    relay = Relay(port)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join()
