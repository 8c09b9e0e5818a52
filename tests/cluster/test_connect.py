from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import uvloop
from aiohttp import web
from aiohttp.test_utils import TestServer

from certs.ephemeral import EphemeralSource
from certs.leaf import ServerNames
from certs.x509 import issue, new_authority
from cluster.api import Api
from cluster.connect import connect
from cluster.version import own

if TYPE_CHECKING:
    from pathlib import Path

_BEGINNING = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


def _kubeconfig(folder: Path, port: int, **user: str) -> str:
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": user or {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return str(file)


async def test_a_program_names_itself(tmp_path: Path) -> None:
    """The API server's records, and the managers of fields, say which program it was, and which version."""
    heads: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        heads.append(request.headers["User-Agent"])
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/version", answer)
    tls = EphemeralSource(ServerNames(("localhost",))).context(None)
    server = TestServer(app)
    await server.start_server(ssl=tls)
    try:
        assert server.port is not None
        async with connect(program="tranche-x", kubeconfig=_kubeconfig(tmp_path, server.port)) as connection:
            await Api(connection).request("GET", "/version")
    finally:
        await server.close()
    assert heads == [f"tranche-x/{own().version}"]


async def test_a_request_of_a_user_has_nothing_of_this_process(tmp_path: Path) -> None:
    """An API server prefers a client certificate to a token, so it gets none when a user's token is sent."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = new_authority("clients", lifetime=day, now=now)
    own = issue(authority, common_name="scheduler", dns_names=("scheduler",), lifetime=day, now=now, client=True)
    seen: list[tuple[bool, str]] = []

    async def answer(request: web.Request) -> web.Response:
        tls = request.get_extra_info("ssl_object")
        seen.append((bool(tls.getpeercert(binary_form=True)), request.headers.get("Authorization", "")))
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/version", answer)
    context = EphemeralSource(ServerNames(("localhost",))).context(None)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    server = TestServer(app)
    await server.start_server(ssl=context)
    identity = {"client-certificate-data": own.certificate_pem, "client-key-data": own.key_pem}
    try:
        assert server.port is not None
        user = {name: base64.b64encode(content).decode() for name, content in identity.items()}
        async with connect(program="x", kubeconfig=_kubeconfig(tmp_path, server.port, **user)) as connection:
            await Api(connection).request("GET", "/version")
            await Api(connection).as_user("of a user").request("GET", "/version")
    finally:
        await server.close()
    assert seen == [(True, ""), (False, "Bearer of a user")]


@pytest.mark.parametrize("has_answered", [True, False], ids=["a watch", "a request without a response"])
def test_cancelled_requests_do_not_outlive_the_event_loop(tmp_path: Path, *, has_answered: bool) -> None:
    """The server never takes part in the TLS shutdown, which the event loop would wait for."""
    tls = EphemeralSource(ServerNames(("localhost",))).context(None)
    asked, ended = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError), tls.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.recv(65536)
            if has_answered:
                connection.sendall(_BEGINNING)
            asked.set()
            ended.wait(30)

    async def read(api: Api) -> None:
        async with api.open("GET", "/") as response:
            await response.read()

    async def cancel(kubeconfig: str) -> None:
        async with connect(program="tranche-test", kubeconfig=kubeconfig) as connection:
            reading = asyncio.create_task(read(Api(connection)))
            assert await asyncio.to_thread(asked.wait, 30)
            await asyncio.sleep(0.1)  # for the response, if there is one, to be read
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(cancel(_kubeconfig(tmp_path, listener.getsockname()[1])), 30))
        finally:
            loop.close()  # raises OSError while a connection is open
            ended.set()
            server.join(30)
