"""What a server shows to who calls it: the only proof that a new certificate is in use."""

import asyncio
import ssl
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

_SECONDS = 5.0


def split(address: str) -> tuple[str, int]:
    """Answer host and port of HOST:PORT; an IPv6 address stands in brackets.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and parts.netloc == address:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ValueError(f"{address!r} is no HOST:PORT")


async def shown(address: str) -> x509.Certificate | None:
    """Answer the certificate that the server at `address` shows, whoever signed it, None where there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return await _shown(address, context)
    except OSError:
        return None


async def objection(address: str, *, authority: x509.Certificate, unlike: x509.Certificate | None = None) -> str:
    """Answer why the server at `address` is not one that shows a new certificate of `authority`, empty where it is.

    Its name is not verified: who probes calls each replica by its address, the API server calls all by one name.

    Args:
        address: HOST:PORT.
        authority: who is to have signed what it shows.
        unlike: what it showed before and shall show no more.
    """
    context = ssl.create_default_context(cadata=authority.public_bytes(Encoding.PEM).decode())
    context.check_hostname = False
    try:
        found = await _shown(address, context)
    except ssl.SSLCertVerificationError:
        return f"{address} shows no certificate of the new authority"
    except TimeoutError:
        return f"{address} does not answer within {_SECONDS:g} s"
    except OSError as error:
        return f"{address} cannot be reached: {error}"
    return f"{address} still shows the certificate of before" if found == unlike else ""


async def _shown(address: str, context: ssl.SSLContext) -> x509.Certificate:
    host, port = split(address)
    async with asyncio.timeout(_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()  # nothing is said, so nothing needs to be said in farewell
    return x509.load_der_x509_certificate(der)
