"""A node beside whose API server the agent's DRA parts run: what it says, a test sets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import msgspec

from agent.dra import calls
from agent.dra.claim import Claim
from agent.dra.messages_pb2 import Claim as ClaimMessage
from agent.dra.messages_pb2 import (
    InfoRequest,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from cluster.errors import NotFoundError, UnreachableError
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from agent.dra.messages_pb2 import NodePrepareResourceResponse

NODE = "n1"


def result(request: str = "gpu", device: str = "gpu-0", **fields: Any) -> dict[str, Any]:
    """Return a device that is allocated to a claim, as kube-scheduler writes it."""
    return {"request": request, "driver": "gpu.scheduling", "pool": NODE, "device": device, **fields}


def claim(name: str, *results: dict[str, Any], uid: str = "") -> Claim:
    """Return a claim with these devices."""
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    metadata = {"name": name, "namespace": "team", "uid": uid or f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "status": status}, Claim)


class PlayedNode:
    """The view of a node.

    Attributes:
        present: its slice.
        all_claims: the claims of the cluster by name.
        pod: a pod with an allocation of the ledger.
        confirmed: the drain that the present leader has confirmed.
        too_old: why the cluster cannot share devices.
        is_down: whether the API server does not answer.
        writes: what was done to the slice.
    """

    def __init__(self) -> None:
        self.present: Mapping[str, Any] | None = None
        self.all_claims: dict[str, Claim] = {}
        self.pod = ""
        self.confirmed = ""
        self.too_old = ""
        self.is_down = False
        self.writes: list[str] = []

    async def unsupported(self) -> str:
        """Return why the cluster cannot share devices."""
        return self.too_old

    async def slice(self) -> Mapping[str, Any] | None:
        """Return what a test has set, or the agent has written."""
        self._answer()
        return self.present

    async def write_slice(self, body: Mapping[str, Any]) -> None:
        """Store the slice."""
        self.writes.append("write")
        self.present = body

    async def withdraw_slice(self) -> None:
        """Delete the slice."""
        self.writes.append("withdraw")
        self.present = None

    async def claims(self) -> list[Claim]:
        """Return the claims with cards of the node."""
        self._answer()
        return [each for each in self.all_claims.values() if each.results(NODE)]

    async def claim(self, namespace: str, name: str) -> Claim:
        """Return the claim of a name; there is one namespace."""
        self._answer()
        found = self.all_claims.get(name)
        if found is None or namespace != "team":
            raise NotFoundError(request=f"GET {name}", status=404, reason="NotFound", message=f"{name} not found")
        return found

    async def allocated_pod(self) -> str:
        """Return a pod of the ledger."""
        self._answer()
        return self.pod

    async def is_confirmed(self, drain: str) -> bool:
        """Whether the drain is confirmed."""
        return bool(drain) and drain == self.confirmed

    def _answer(self) -> None:
        if self.is_down:
            raise UnreachableError("GET /apis: no answer")


class PlayedKubelet:
    """A kubelet as a DRA plugin sees it: it calls the sockets that it finds in its folder."""

    def __init__(self, registrations: Path, *, namespace: str = "team") -> None:
        """Look for plugins in `registrations`; the claims are in `namespace`."""
        self._registrations = registrations
        self._namespace = namespace

    @property
    def socket(self) -> Path:
        """The socket by which the plugin registers."""
        return self._registrations / "gpu.scheduling-reg.sock"

    async def register(self, *, error: str = "") -> PluginInfo:
        """Wait for the plugin, ask what it is, and tell it that it is registered, or why not."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if self.socket.exists():
                    try:
                        info = await self._register("GetInfo", InfoRequest(), PluginInfo)
                        break
                    except grpc.aio.AioRpcError:
                        pass
                await asyncio.sleep(0.02)
        status = RegistrationStatus(plugin_registered=not error, error=error)
        await self._register("NotifyRegistrationStatus", status, RegistrationStatusResponse)
        found: PluginInfo = info
        return found

    async def _register(self, method: str, request: Any, answer: Any) -> Any:
        return await _call(self.socket, f"/{calls.REGISTRATION}/{method}", request, answer)

    async def prepare(self, *names: str, uid: str = "") -> dict[str, NodePrepareResourceResponse]:
        """Ask for the devices of claims, and return the answers by UID."""
        request = NodePrepareResourcesRequest(claims=[self._message(name, uid) for name in names])
        answer = await self._plugin("NodePrepareResources", request, NodePrepareResourcesResponse)
        return dict(answer.claims)

    async def unprepare(self, *names: str, uid: str = "") -> dict[str, str]:
        """Say that the pods of claims have ended, and return the errors by UID."""
        request = NodeUnprepareResourcesRequest(claims=[self._message(name, uid) for name in names])
        answer = await self._plugin("NodeUnprepareResources", request, NodeUnprepareResourcesResponse)
        return {uid: each.error for uid, each in answer.claims.items()}

    def _message(self, name: str, uid: str) -> ClaimMessage:
        return ClaimMessage(namespace=self._namespace, name=name, uid=uid or f"uid-{name}")

    async def _plugin(self, method: str, request: Any, answer: Any) -> Any:
        info = await self.register()
        return await _call(info.endpoint, f"/{calls.SERVICE}/{method}", request, answer)


async def _call(socket: Any, method: str, request: Any, answer: Any) -> Any:
    async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
        call = channel.unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        return await call(request, timeout=PATIENCE_S)


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Run a coroutine while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
