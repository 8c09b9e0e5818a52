"""`python -m lab.kubernetes_service ADDRESS PORT`: the Service `kubernetes`, for pods that need the API server.

The lab runs no kube-proxy. The address of the Service becomes one of this machine, and connections to it are forwarded
to the API server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab import health, wait
from lab.layout import Port
from lab.processes import Daemon

if TYPE_CHECKING:
    from lab.layout import Layout

NAME: Final = "kubernetes-service"
_HTTPS: Final = 443
_BLOCK: Final = 65536


def address(layout: Layout) -> str:
    """Return the address of the Service: the API server gives it the first of its range."""
    return str(next(ipaddress.ip_network(layout.service_subnet).hosts()))


def up(layout: Layout) -> None:
    """Serve the Service until `down`. Idempotent.

    Raises:
        LabError: it is not served in time.
    """
    served, daemon = address(layout), Daemon(layout, NAME)
    subprocess.run(["ip", "address", "replace", f"{served}/32", "dev", "lo"], check=True)
    daemon.start([sys.executable, "-m", "lab.kubernetes_service", served, str(layout.port(Port.KUBE_APISERVER))])
    wait.until(
        lambda: health.probe(f"https://{served}/readyz"),
        what=f"Service kubernetes at {served}",
        daemons=[daemon],
    )


def remove(layout: Layout) -> None:
    """Stop it and give the address back, also after a crash."""
    Daemon(layout, NAME).stop()
    with suppress(FileNotFoundError):  # a machine without `ip` never had the address
        subprocess.run(
            ["ip", "address", "delete", f"{address(layout)}/32", "dev", "lo"], capture_output=True, check=False
        )


async def serve(served: str, port: int) -> None:
    """Forward connections to HTTPS at an address of this machine to a port on loopback."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(_BLOCK):
                writer.write(block)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(forward, served, _HTTPS)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
