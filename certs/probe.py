"""What a server shows to who calls it: the only proof that a new certificate is in use."""

import asyncio
import ssl
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate

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


async def objection(address: str, *, authority: Certificate) -> str:
    """Answer why the server at `address` is not one that shows a certificate of `authority`, empty where it is.

    Its name is not verified: who probes calls each replica by its address, the API server calls all by one name.
    """
    host, port = split(address)
    context = ssl.create_default_context(cadata=authority.public_bytes(Encoding.PEM).decode())
    context.check_hostname = False
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError:
        return f"{address} shows no certificate of the new authority"
    except TimeoutError:
        return f"{address} does not answer within {_SECONDS:g} s"
    except OSError as error:
        return f"{address} cannot be reached: {error}"
    writer.transport.abort()  # nothing is said, so nothing needs to be said in farewell
    return ""
