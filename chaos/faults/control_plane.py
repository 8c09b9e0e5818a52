"""An API server that goes and comes, and an etcd that forgets."""

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
    """kube-apiserver ends in order and starts again."""

    name = "API server restarted"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Stop it and start it."""
        del draw
        await asyncio.to_thread(control_plane.restart_apiserver, world.layout)


class KillApiServer(Fault):
    """kube-apiserver ends without a word and stays away for a while."""

    name = "SIGKILL API server"
    hold_seconds = (1.0, 8.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Kill it."""
        del draw
        daemon = Daemon(world.layout, "kube-apiserver")
        if daemon.pid is not None:
            os.kill(daemon.pid, signal.SIGKILL)
        await asyncio.to_thread(daemon.stop)

    async def heal(self, world: World) -> None:
        """Start it again."""
        await asyncio.to_thread(control_plane.start_apiserver, world.layout)


class Compact(Fault):
    """Watches end, etcd forgets all that was before, a new API server remembers nothing: 410 for who comes back.

    An API server answers from its own memory what etcd has forgotten, so it is restarted as well.
    """

    name = "etcd compacted"
    hold_seconds = (0.0, 1.0)

    async def apply(self, world: World, draw: Random) -> None:
        """Let watches end, forget, and let them go on from where they were."""
        del draw
        for replica in world.replicas:
            replica.proxy.hold()
        try:
            # While nobody listens the pods that come and go move etcd's count on.
            await asyncio.sleep(1.0)
            await asyncio.to_thread(compact, world.layout)
            await asyncio.to_thread(control_plane.restart_apiserver, world.layout)
        finally:
            for replica in world.replicas:
                replica.proxy.release()


def compact(layout: Layout) -> None:
    """Have etcd forget every revision but the present one."""
    present = _etcd(layout, "range", {"key": "AA=="})["header"]["revision"]
    _etcd(layout, "compaction", {"revision": present, "physical": True})


def _etcd(layout: Layout, verb: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
    """Ask etcd by the JSON gateway of its API."""
    tls = ssl.create_default_context(cafile=pki.certificate(layout, pki.ETCD_CA))
    client = "kube-apiserver-etcd-client"
    tls.load_cert_chain(pki.certificate(layout, client), pki.key(layout, client))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    url = f"https://127.0.0.1:{layout.port(Port.ETCD)}/v3/kv/{verb}"
    with opener.open(urllib.request.Request(url, data=json.dumps(body).encode()), timeout=20) as answer:
        content: dict[str, dict[str, str]] = json.loads(answer.read())
    return content
