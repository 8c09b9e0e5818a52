"""An API server that forwards ports of pods as the kubelet does, to a page in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from cluster.http.listener import listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROTOCOL = "v4.channel.k8s.io"
TEXT = "the page"


class Forwarding:
    """The API server.

    Attributes:
        url: where it listens.
        holder: the identity in the leader's Lease; None if there is no Lease.
        lease_status: the status of the response to a read of the Lease.
        forward_status: the same for a forward; 101 forwards.
        error: what the kubelet says on the error channel instead of forwarding.
        asked: the pods whose ports were forwarded, with the port.
        page_status: the status with which the page responds.
    """

    def __init__(self) -> None:
        self.url = ""
        self.holder: str | None = "scheduler-a-0badcafe"
        self.lease_status, self.forward_status, self.page_status = 200, 101, 200
        self.error = ""
        self.asked: list[tuple[str, str]] = []
        self._page = 0

    async def _lease(self, _request: web.Request) -> web.Response:
        if self.holder is None or self.lease_status != 200:
            return web.json_response({"message": "refused"}, status=404 if self.holder is None else self.lease_status)
        return web.json_response({"metadata": {"name": "tranche-scheduler"}, "spec": {"holderIdentity": self.holder}})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.match_info["pod"], request.query["ports"]))
        if self.forward_status != 101:
            return web.Response(status=self.forward_status)
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        assert socket.ws_protocol == PROTOCOL
        port = int(request.query["ports"]).to_bytes(2, "little")
        await socket.send_bytes(b"\0" + port)
        await socket.send_bytes(b"\1" + port)
        if self.error:
            await socket.send_bytes(b"\1" + self.error.encode())
        else:
            await self._pass_on(socket)
        return socket

    async def _pass_on(self, socket: web.WebSocketResponse) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._page)

        async def respond() -> None:
            while chunk := await reader.read(1000):  # several messages for one response
                await socket.send_bytes(b"\0" + chunk)
            await socket.close()

        responding = asyncio.create_task(respond())
        async for message in socket:
            assert (message.type, message.data[0]) == (WSMsgType.BINARY, 0)
            writer.write(message.data[1:])
        responding.cancel()
        writer.close()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await response.write(TEXT.encode())
            await asyncio.sleep(0.01)
        return response

    async def _show(self, _request: web.Request) -> web.Response:
        return web.Response(text=TEXT * 1000, status=self.page_status)


@asynccontextmanager
async def forwarding() -> AsyncIterator[Forwarding]:
    """Serve while the block runs."""
    made = Forwarding()
    page, api = web.Application(), web.Application()
    page.router.add_get("/ui/", made._show)
    page.router.add_get("/ui/events", made._stream)
    leases = "/apis/coordination.k8s.io/v1/namespaces/tranche-system/leases/tranche-scheduler"
    api.router.add_get(leases, made._lease)
    api.router.add_get("/api/v1/namespaces/tranche-system/pods/{pod}/portforward", made._forward)
    async with (
        listening(page, host="127.0.0.1", port=0) as made._page,
        listening(api, host="127.0.0.1", port=0) as port,
    ):
        made.url = f"http://127.0.0.1:{port}"
        yield made
