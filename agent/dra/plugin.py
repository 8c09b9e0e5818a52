"""The DRA plugin: its two sockets, one by which the kubelet finds it, and one for its calls.

The kubelet looks for new sockets in the folder of registrations, also when it starts, and calls what it finds there. It
deletes the slices of a node's driver when the plugin has been gone for 30 s.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import grpc

from agent.dra import calls
from agent.dra.calls import Calls
from allocation.names import DRA_DRIVER
from cluster.errors import ClusterError
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_ENDPOINT: Final = "dra.sock"
_REGISTRATION: Final = f"{DRA_DRIVER}-reg.sock"
_PAUSE_SECONDS: Final = 1.0


class DraPlugin:
    """The agent as the DRA plugin of its node's kubelet."""

    def __init__(self, own: Calls, *, folder: Path, registrations: Path) -> None:
        """Serve the kubelet.

        Args:
            own: the answers.
            folder: where the plugin's own socket is, under the same path for the kubelet.
            registrations: the kubelet's folder for the registration of plugins.
        """
        self._calls = own
        self._endpoint = folder / _ENDPOINT
        self._registration = registrations / _REGISTRATION
        self._problems = LogOnce()

    async def run(self) -> None:
        """Stay registered until cancelled."""
        while True:
            try:
                await self._calls.reconcile()
                await self._serve()
                self._problems.report(str(self._registration), "another process has replaced the socket")
            except (ClusterError, OSError, RuntimeError) as error:  # grpc has no error of its own for a socket
                self._problems.report(str(self._registration), str(error))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve(self) -> None:
        """Serve both sockets until one of them is another one, or gone."""
        self._endpoint.parent.mkdir(parents=True, exist_ok=True)
        registration = calls.registration(str(self._endpoint), self._report)
        own, registering = grpc.aio.server(), grpc.aio.server()
        own.add_generic_rpc_handlers((self._calls.handler(),))
        registering.add_generic_rpc_handlers((registration,))
        try:
            # The kubelet calls the plugin as soon as it finds the second one.
            for server, socket in ((own, self._endpoint), (registering, self._registration)):
                socket.unlink(missing_ok=True)
                server.add_insecure_port(f"unix://{socket}")
                await server.start()
            sockets = (self._endpoint, self._registration)
            served = [_identity(each) for each in sockets]
            while [_identity(each) for each in sockets] == served:  # noqa: ASYNC110 -- nothing tells of a socket's end
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            for server in (registering, own):
                await server.stop(grace=None)

    def _report(self, problem: str) -> None:
        self._problems.report(str(self._registration), problem and f"the kubelet does not accept the plugin: {problem}")
        if not problem:
            log.info("DRA plugin %s registered with the kubelet", DRA_DRIVER)


def _identity(socket: Path) -> tuple[int, int] | None:
    """Return what tells a socket from another one of the same path; None if it does not exist."""
    try:
        status = socket.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns
