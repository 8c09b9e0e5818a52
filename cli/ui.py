"""`kubectl gpu ui`: forward a local port to the page of the leading scheduler, and open it in the browser."""

import argparse
import asyncio
import os
import sys
import webbrowser
from contextlib import suppress
from typing import Final

import aiohttp

from allocation.names import SYSTEM_NAMESPACE
from cli.errors import CommandError, MissingRightError
from cli.kube import port_forward
from cli.kube.port_forward import PortForward
from cli.kube.session import Session, connected
from cli.tables import note
from cluster.api import Api
from cluster.connection import Connection
from cluster.errors import ApiError, ClusterError, NotFoundError
from cluster.lease import Lease
from cluster.resource import LEASES

LEASE: Final = "tranche-scheduler"
PORT: Final = 8446
PATH: Final = "/ui/"
_HOST: Final = "127.0.0.1"
_CHECK_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 2.0
"""How soon a page that is open is moved to another replica that leads."""
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_SEE: Final = f"see 'kubectl get pods -n {SYSTEM_NAMESPACE}'"


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Forward the page until Ctrl-C."""
    return asyncio.run(_run(session, arguments))


async def _run(session: Session, arguments: argparse.Namespace) -> int:
    async with connected(session.access) as connection:
        page = _ForwardedPage(connection)
        try:
            server = await asyncio.start_server(page.serve, _HOST, arguments.port)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise CommandError(
                f"port {arguments.port} of {_HOST} cannot be used: {why}; choose another --port"
            ) from None
        try:
            url = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}{PATH}"
            await page.check(url)
            print(f"the page of the scheduler, until Ctrl-C: {url}", flush=True)
            if not arguments.no_browser:
                await _open_browser(url)
            await page.follow()
        finally:
            # Not waited for: the streams of events do not end by themselves, and end with this process.
            server.close()
    return 0


class _ForwardedPage:
    """The local end of the browser's connections."""

    def __init__(self, connection: Connection) -> None:
        self._api = Api(connection)
        self._forward = PortForward(connection, namespace=SYSTEM_NAMESPACE, port=PORT)
        self._failure = ""
        self._is_checked = False
        self._carried: dict[asyncio.Task[None], str] = {}
        """The connections, each with its pod."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection to the replica that leads now; if that fails, note why, once for each reason."""
        before = self._failure
        try:
            pod = await self._leader()
            carrying = asyncio.create_task(self._forward.carry(pod, reader, writer))
            self._carried[carrying] = pod
            carrying.add_done_callback(self._carried.pop)
            await asyncio.wait((carrying,))
            if not carrying.cancelled():
                carrying.result()
            if self._failure == before:  # else a later connection has failed meanwhile
                self._failure = ""
        except (CommandError, ClusterError) as error:
            if self._is_checked and str(error) != self._failure:
                note(str(error))
            self._failure = str(error)
        finally:
            writer.close()

    async def follow(self) -> None:
        """Close the connections to a replica that leads no more, so that the browser opens them to the one that does.

        It runs until it is cancelled.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(CommandError, ClusterError):  # a new connection notes it
                leader = await self._leader()
                for carrying, pod in tuple(self._carried.items()):
                    if pod != leader:
                        carrying.cancel()

    async def check(self, url: str) -> None:
        """Load the page once.

        Raises:
            CommandError: no replica leads, its port cannot be forwarded, or it does not serve the page.
        """
        timeout = aiohttp.ClientTimeout(total=_CHECK_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as browser, browser.get(url) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError):
            raise CommandError(self._failure or f"the page did not load within {_CHECK_SECONDS:g} s; {_SEE}") from None
        if status >= 400:
            raise CommandError(
                f"the scheduler does not serve its page ({status}): set scheduler.ui.enabled in its configuration, or"
                " ui.enabled of the Helm chart (docs/ui.md)"
            )
        self._is_checked = True

    async def _leader(self) -> str:
        """Return the pod of the replica that leads: the identity in the Lease is the pod's name and a random part."""
        try:
            lease = await self._api.get(LEASES, Lease, name=LEASE, namespace=SYSTEM_NAMESPACE)
        except NotFoundError:
            raise CommandError(f"Lease {SYSTEM_NAMESPACE}/{LEASE} does not exist: no scheduler runs; {_SEE}") from None
        except ApiError as error:
            if error.status != 403:
                raise
            raise MissingRightError(
                verb="get",
                resource=LEASES.plural,
                namespace=SYSTEM_NAMESPACE,
                server=error.message,
                role=port_forward.ROLE,
            ) from None
        if not lease.spec.holder_identity:
            raise CommandError(f"Lease {SYSTEM_NAMESPACE}/{LEASE} has no holder: no scheduler leads; {_SEE}")
        return lease.spec.holder_identity.rpartition("-")[0]


async def _open_browser(url: str) -> None:
    """Open the page; without a desktop only say so, for a browser in the terminal cannot show it."""
    has_desktop = sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in _DISPLAYS)
    if not has_desktop or not await asyncio.to_thread(webbrowser.open, url):
        note("no browser was found: open the URL in one on this machine")
