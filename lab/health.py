"""Probes of the health endpoints of components."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from lab import pki

if TYPE_CHECKING:
    from lab.layout import Layout, Port

TIMEOUT_S = 2.0


def probe(url: str) -> bool:
    """Whether `url` returns 200; like a kubelet's probe, this does not verify the certificate."""
    return _returns_ok(url, unverified())


def unverified() -> ssl.SSLContext:
    """Return a context that verifies nothing; a default one would read all authorities of the machine first: 50 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def is_ready(layout: Layout, port: Port, path: str, *, authority: str = pki.CLUSTER_CA, client: str = "admin") -> bool:
    """Whether `https://127.0.0.1:<port><path>` returns 200 for the client certificate `client`."""
    context = ssl.create_default_context(cafile=pki.certificate(layout, authority))
    context.load_cert_chain(pki.certificate(layout, client), pki.key(layout, client))
    return _returns_ok(f"https://127.0.0.1:{layout.port(port)}{path}", context)


def is_alive(layout: Layout, port: Port, path: str = "/healthz") -> bool:
    """Whether `http://127.0.0.1:<port><path>` returns 200."""
    return _returns_ok(f"http://127.0.0.1:{layout.port(port)}{path}", None)


def _returns_ok(url: str, context: ssl.SSLContext | None) -> bool:
    # Proxies from the environment are not used for addresses of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
