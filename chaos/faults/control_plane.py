"""Faults of the control plane: the API server restarts or dies, etcd compacts its history."""

import asyncio
import json
import os
import signal
import ssl
import urllib.request
from random import Random

from chaos.faults.fault import Fault
from chaos.world import World
from lab import control_plane, pki
from lab.layout import Layout, Port
from lab.processes import Daemon


class RestartApiServer(Fault):
    """kube-apiserver is stopped by SIGTERM and started again."""

    name = "API server restarted"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Restart kube-apiserver."""
        del draw
        await asyncio.to_thread(control_plane.restart_apiserver, world.layout)
        self.effects += 1


class KillApiServer(Fault):
    """kube-apiserver is killed and is unavailable for a while."""

    name = "SIGKILL API server"
    hold_seconds = (1.0, 8.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Kill kube-apiserver."""
        del draw
        daemon = Daemon(world.layout, "kube-apiserver")
        if daemon.pid is not None:
            os.kill(daemon.pid, signal.SIGKILL)
            self.effects += 1
        await asyncio.to_thread(daemon.stop)

    async def heal(self, world: World) -> None:
        """Start kube-apiserver again."""
        await asyncio.to_thread(control_plane.start_apiserver, world.layout)


class Compact(Fault):
    """Watches end, etcd compacts its history, and the API server restarts, so that resumed watches get 410 Gone.

    The restart is needed because an API server serves compacted versions from its own watch cache.
    """

    name = "etcd compacted"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """End all watches, compact, and let the watches resume."""
        del draw
        for replica in world.replicas:
            replica.proxy.hold()
        try:
            # While no watch is open, the pods that are created and deleted advance etcd's revision.
            await asyncio.sleep(1.0)
            await asyncio.to_thread(compact, world.layout)
            self.effects += 1
            await asyncio.to_thread(control_plane.restart_apiserver, world.layout)
        finally:
            for replica in world.replicas:
                replica.proxy.release()


def compact(layout: Layout) -> None:
    """Compact etcd to its current revision."""
    current = _etcd(layout, "range", {"key": "AA=="})["header"]["revision"]
    _etcd(layout, "compaction", {"revision": current, "physical": True})


def _etcd(layout: Layout, verb: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
    """Call etcd's API through its JSON gateway."""
    tls = ssl.create_default_context(cafile=pki.certificate(layout, pki.ETCD_CA))
    client = "kube-apiserver-etcd-client"
    tls.load_cert_chain(pki.certificate(layout, client), pki.key(layout, client))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    url = f"https://127.0.0.1:{layout.port(Port.ETCD)}/v3/kv/{verb}"
    with opener.open(urllib.request.Request(url, data=json.dumps(body).encode()), timeout=20) as response:
        content: dict[str, dict[str, str]] = json.loads(response.read())
    return content
