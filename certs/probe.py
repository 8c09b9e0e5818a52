"""Connects to a server and reads its certificate: the only proof that a new certificate is in use."""

import asyncio
import ssl
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

_TIMEOUT_SECONDS = 5.0


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address is written in brackets.

    Raises:
        ValueError: `address` does not have this form.
    """
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and parts.netloc == address:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ValueError(f"{address!r} is not HOST:PORT")


async def served_certificate(address: str) -> x509.Certificate | None:
    """Return the certificate of the server at `address`, whatever its signer, or None where the server has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return await _handshake(address, context)
    except OSError:
        return None


async def problem(address: str, *, authority: x509.Certificate, previous: x509.Certificate | None = None) -> str:
    """Return the reason why the server at `address` does not serve a new certificate, or an empty string.

    The server's name is not verified: a probe calls each replica by its address, the API server calls all by one name.

    Args:
        address: HOST:PORT.
        authority: the required signer of the certificate.
        previous: the certificate that the server served before and must have replaced.
    """
    context = ssl.create_default_context(cadata=authority.public_bytes(Encoding.PEM).decode())
    context.check_hostname = False
    try:
        certificate = await _handshake(address, context)
    except ssl.SSLCertVerificationError:
        return f"{address} does not serve a certificate of the new authority"
    except TimeoutError:
        return f"{address} does not answer within {_TIMEOUT_SECONDS:g} s"
    except OSError as error:
        return f"{address} cannot be reached: {error}"
    return f"{address} still serves its previous certificate" if certificate == previous else ""


async def _handshake(address: str, context: ssl.SSLContext) -> x509.Certificate:
    host, port = parse_address(address)
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()  # no data was exchanged, so the connection needs no orderly shutdown
    return x509.load_der_x509_certificate(der)
