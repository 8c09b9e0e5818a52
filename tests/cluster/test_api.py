from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import aiohttp
import uvloop

from certs.ephemeral import EphemeralSource
from certs.leaf import ServerNames
from cluster.api import Api
from cluster.connection import Connection

_BEGINNING = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


async def _no_headers() -> dict[str, str]:
    return {}


def test_abandoned_watch_does_not_outlive_the_event_loop() -> None:
    """The server never takes part in the TLS shutdown, which the loop would have to wait for."""
    tls, ended = EphemeralSource(ServerNames(("localhost",))).context(None), threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError), tls.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(_BEGINNING)
            ended.wait(30)

    async def watch(port: int) -> None:
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session:
            server = f"https://127.0.0.1:{port}"
            api = Api(Connection(session=session, server=server, headers=_no_headers, namespace="default"))
            async with api.open("GET", "/") as response:
                assert await response.content.read(2) == b"{}"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(watch(listener.getsockname()[1]), 30))
        finally:
            loop.close()  # raises OSError while a connection is open
            ended.set()
            server.join(30)
